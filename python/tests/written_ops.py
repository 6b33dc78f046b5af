# SPDX-License-Identifier: Apache-2.0
"""Ops written in Python, for the tests: leaves on NumPy arrays, composites of both kinds."""
import numpy as np

import tileops_cpp
from tileops_cpp import Op
from tileops_cpp.moe import MoEExpertMLPFwdOp


def window_mean(x, window):
    y = np.empty_like(x)
    for column in range(x.shape[1]):
        begin = max(0, column - window + 1)
        y[:, column] = x[:, begin : column + 1].mean(axis=1)
    return y


class PyWindowMeanFwdOp(Op):
    def __init__(self, window, *, target=None):
        super().__init__(window=window, target=target)
        self.window = window

    def forward(self, x, *, y=None):
        mean = window_mean(x, self.window)
        if y is None:
            return mean
        y[:] = mean
        return y


class PySmoothFwdOp(Op):
    """Both sub-ops are held from construction; `wide_op` may be injected."""

    delegate_types = {"narrow": PyWindowMeanFwdOp, "wide": PyWindowMeanFwdOp}
    injected = ("wide_op",)

    def __init__(self, window=2, wide_op=None, *, target=None):
        self.window = window  # read as the parameter of that name
        super().__init__(target=target)
        self.narrow = self.delegate_for("narrow", None, window=window)
        self.wide = self.delegate_for("wide", None, wide_op, window=2 * window)

    def forward(self, x, *, y=None):
        return self.wide(self.narrow(x), y=y)


class PyQuarterFwdOp(Op):
    """Holds a sub-op per window, when a call tells which."""

    delegate_types = {"mean": PyWindowMeanFwdOp}

    def forward(self, x):
        window = max(1, x.shape[1] // 4)
        return self.delegate_for("mean", window, window=window)(x)


class PyTwiceExpertsFwdOp(Op):
    delegate_types = {"first": MoEExpertMLPFwdOp, "second": MoEExpertMLPFwdOp}

    def __init__(self, layout=tileops_cpp.MGroupedLayout.contiguous(), *, target=None):
        super().__init__(layout=layout, target=target)
        self.first = self.delegate_for("first", None, layout=layout)
        self.second = self.delegate_for("second", None, layout=layout)

    def forward(self, x, w_gate_up, w_down, ends, *, scale=None):
        hidden = self.first(x, w_gate_up, w_down, ends)
        if scale is not None:
            hidden = hidden * scale
        return self.second(hidden, w_gate_up, w_down, ends)


class PySplitFwdOp(Op):
    def forward(self, x):
        total = x.sum(axis=1)
        return (total, x.max(axis=1)) if self.params["with_max"] else total
