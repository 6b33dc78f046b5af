# SPDX-License-Identifier: Apache-2.0
"""vLLM: a model's unquantised MoE experts, served by this library where TILEOPS_VLLM=1
(docs/vllm.md)."""
import os

_SWITCH = "TILEOPS_VLLM"


def is_on() -> bool:
    """Whether TILEOPS_VLLM asks for this library. Errors: ValueError for words but 0 and 1."""
    word = os.environ.get(_SWITCH, "0")
    if word not in ("", "0", "1"):
        raise ValueError(f"{_SWITCH} is 0 or 1, got {word!r}")
    return word == "1"


def register() -> None:
    """The entry point `tileops_cpp` of `vllm.general_plugins`: vLLM calls it in each of its
    processes. Layers made afterwards are served by this library, or refused with the reason."""
    if is_on():
        from tileops_cpp import _vllm_layers  # noqa: F401  its classes register themselves
