# SPDX-License-Identifier: Apache-2.0
"""What the module tileops_cpp.moe has beside its ops."""
import typing

from tileops_cpp import _core, _op, _sums


class RoutedTokens(typing.NamedTuple):
    """Tokens with their routes: hidden_states [T, H], topk_weights float32 [T, K], topk_ids int32
    [T, K]."""

    hidden_states: typing.Any
    topk_weights: typing.Any
    topk_ids: typing.Any


class PrepareFinalize:
    """What stands around a layer's routed experts, such as an exchange of tokens between ranks.
    Injected into FusedMoEFwdOp as ``prepare_finalize``. One instance serves several calls at once;
    what a call must remember goes into the state.
    """

    def prepare(self, tokens: RoutedTokens, num_experts: int) -> typing.Tuple[RoutedTokens, object]:
        """From this rank's tokens with ids in [0, num_experts) to those that its experts compute,
        any number of them, and a state that finalize gets; ids outside the local experts are
        dropped."""
        return tokens, None

    def finalize(self, expert_output, state, tokens: RoutedTokens):
        """From the experts' output on the prepared tokens to this rank's own: [T, H], a fresh tensor,
        or ``expert_output`` itself."""
        return expert_output


class PackedExperts(_core.PackedExperts):
    """Experts' weights packed once for the CPU's kernels: while it lives, every call with these very
    weights (w_gate_up [E, 2F, H], w_down [E, H, F]) reads the packed copy. Their contents must not
    change meanwhile. ``close()``, or the end of a ``with`` block, drops the copies."""

    def __init__(self, w_gate_up, w_down, activation="silu_and_mul"):
        if isinstance(activation, str):
            activation = getattr(_sums.classes["GatedActivation"], activation)()
        super().__init__(w_gate_up, w_down, activation)


workspace = _core.workspace
kept_workspace_bytes = _core.kept_workspace_bytes


def extend(module):
    """Adds all of that to the module."""
    for each in (RoutedTokens, PrepareFinalize, PackedExperts, workspace, kept_workspace_bytes):
        setattr(module, each.__name__, each)
    _op.classes["FusedMoEExpertsFwdOp"].workspace_bytes = staticmethod(_core.workspace_bytes)


_core.set_routed_tokens(RoutedTokens)
