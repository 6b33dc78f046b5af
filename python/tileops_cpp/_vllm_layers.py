# SPDX-License-Identifier: Apache-2.0
"""What vLLM makes in place of its own MoE classes: its out-of-tree registration, no patching."""
from vllm.config import get_current_vllm_config
from vllm.logger import init_logger
from vllm.model_executor.layers.fused_moe.oracle.unquantized import UnquantizedMoeBackend
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.fused_moe.unquantized_fused_moe_method import (
    UnquantizedFusedMoEMethod,
)
from vllm.model_executor.models.transformers.moe import TransformersMoERunner

from tileops_cpp import __version__, _vllm_experts

_logger = init_logger("vllm.tileops_cpp")


def _refuse(reason):
    raise ValueError(
        f"TILEOPS_VLLM=1: {reason}; without TILEOPS_VLLM, vLLM's own kernels serve the model"
    )


@UnquantizedFusedMoEMethod.register_oot
class TileOpsMoEMethod(UnquantizedFusedMoEMethod):
    """Made wherever vLLM asks for its method for unquantised experts."""

    def __init__(self, moe_config):
        # Past UnquantizedFusedMoEMethod's: vLLM's own kernels are not asked whether they could.
        super(UnquantizedFusedMoEMethod, self).__init__(moe_config)
        if reason := _vllm_experts.refusal(moe_config):
            _refuse(reason)
        self.unquantized_backend = UnquantizedMoeBackend.CPU
        self.experts_cls = _vllm_experts.TileOpsExperts
        # vLLM's cache of compiled models goes by this: without it a graph of vLLM's own kernels,
        # compiled before, would be taken for this model's.
        get_current_vllm_config().additional_config["tileops_cpp"] = __version__
        self.supports_pre_processed_weights = False

    @property
    def supports_eplb(self):
        return False

    def process_weights_after_loading(self, layer):
        if self.moe_kernel is None:
            self._init_moe_kernel(layer)
        self.moe_kernel.fused_experts.take_weights(layer)
        _logger.info_once("MoE experts are served by tileops_cpp (TILEOPS_VLLM=1), packed")


def _check_method(layer_name, method):
    """Each MoE layer is made with a runner, the quantised ones too."""
    if not isinstance(method, TileOpsMoEMethod):
        _refuse(f"{layer_name} is quantised ({type(method).__name__})")


@MoERunner.register_oot
class TileOpsMoERunner(MoERunner):
    def __init__(self, layer_name, *args, routed_experts, **kwargs):
        _check_method(layer_name, routed_experts.quant_method)
        super().__init__(layer_name, *args, routed_experts=routed_experts, **kwargs)


@TransformersMoERunner.register_oot
class TileOpsTransformersMoERunner(TransformersMoERunner):
    def __init__(self, layer_name, *args, routed_experts, **kwargs):
        _check_method(layer_name, routed_experts.quant_method)
        super().__init__(layer_name, *args, routed_experts=routed_experts, **kwargs)
