# SPDX-License-Identifier: Apache-2.0
"""The experts of one MoE layer, as vLLM's modular kernels call them."""
import torch
import vllm.envs
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.fused_moe import modular_kernel
from vllm.model_executor.layers.fused_moe.activation import MoEActivation
from vllm.model_executor.layers.fused_moe.topk_weight_and_reduce import TopKWeightAndReduceNoOP
from vllm.model_executor.utils import replace_parameter
from vllm.platforms import current_platform

from tileops_cpp import GatedActivation, moe

_ACTIVATIONS = {
    MoEActivation.SILU: "silu_and_mul",
    MoEActivation.GELU: "gelu_and_mul",
    MoEActivation.GELU_TANH: "gelu_tanh_and_mul",
    MoEActivation.SWIGLUOAI: "swigluoai",
}
_DTYPES = (torch.float16, torch.bfloat16)


def activation_of(config) -> GatedActivation:
    """The activation that a FusedMoEConfig names."""
    constructor = getattr(GatedActivation, _ACTIVATIONS[config.activation])
    given = {"alpha": config.swiglu_alpha, "limit": config.swiglu_limit}
    return constructor(**{name: value for name, value in given.items() if value is not None})


class TileOpsExperts(modular_kernel.FusedMoEExpertsModular):
    """Computes with FusedMoEExpertsFwdOp, on weights that are kept packed alone."""

    def __init__(self, moe_config, quant_config):
        super().__init__(moe_config, quant_config)
        self._op = moe.FusedMoEExpertsFwdOp(
            activation=activation_of(moe_config), batch_invariant=vllm.envs.VLLM_BATCH_INVARIANT
        )

    def take_weights(self, layer) -> None:
        """Packs the weights of a RoutedExperts, whose parameters keep no elements. A later call
        takes the layer's new ones."""
        self._layer_name = layer.layer_name
        packed = moe.PackedExperts(
            layer.w13_weight.data, layer.w2_weight.data, activation_of(self.moe_config)
        )
        self._weights = packed.release_weights()
        self._packed = packed
        for name in ("w13_weight", "w2_weight"):
            weights = getattr(layer, name)
            replace_parameter(layer, name, weights.data.new_empty((weights.shape[0], 0, 0)))

    def run(self, output, hidden_states, topk_weights, topk_ids) -> None:
        """Writes the weighted sums [T, H] into `output`; ids are those of this rank's experts."""
        self._op(
            hidden_states,
            topk_weights,
            topk_ids,
            *self._weights,
            b_gate_up=self.w1_bias,
            b_down=self.w2_bias,
            output=output,
        )

    def apply(
        self,
        output,
        hidden_states,
        w1,
        w2,
        topk_weights,
        topk_ids,
        activation,
        global_num_experts,
        expert_map,
        a1q_scale,
        a2_scale,
        workspace13,
        workspace2,
        expert_tokens_meta,
        apply_router_weight_on_input,
    ) -> None:
        if apply_router_weight_on_input:  # vLLM has scaled hidden_states
            topk_weights = torch.ones_like(topk_weights)
        if expert_map is not None:
            local_ids = expert_map[topk_ids.clamp(min=0).long()]
            topk_ids = torch.where(topk_ids < 0, -1, local_ids)
        arguments = (output, hidden_states, topk_weights.float(), topk_ids.int())
        if torch.compiler.is_compiling():
            torch.ops.tileops_cpp_vllm.experts(*arguments, self._layer_name)
        else:
            self.run(*arguments)

    def moe_problem_size(self, a1, w1, w2, topk_ids):
        config = self.moe_config
        num_rows = 2 * config.intermediate_size_per_partition
        return config.num_local_experts, a1.shape[0], num_rows, a1.shape[1], topk_ids.shape[1]

    def workspace_shapes(
        self,
        M,
        N,
        K,
        topk,
        global_num_experts,
        local_num_experts,
        expert_tokens_meta,
        activation,
    ):
        return (0,), (0,), (M, K)  # the library keeps its own

    def finalize_weight_and_reduce_impl(self):
        return TopKWeightAndReduceNoOP()

    @property
    def expects_unquantized_inputs(self):
        return True

    @staticmethod
    def activation_format():
        return modular_kernel.FusedMoEActivationFormat.Standard

    @staticmethod
    def _supports_current_device():
        return current_platform.is_cpu()

    @staticmethod
    def _supports_no_act_and_mul():
        return False

    @staticmethod
    def _supports_quant_scheme(weight_key, activation_key):
        return weight_key is None and activation_key is None

    @staticmethod
    def _supports_activation(activation):
        return activation in _ACTIVATIONS

    @staticmethod
    def _supports_parallel_config(moe_parallel_config):
        return not moe_parallel_config.use_all2all_kernels

    @staticmethod
    def _supports_batch_invariance():
        return True


def refusal(config) -> "str | None":
    """Why the layers of a FusedMoEConfig cannot be served; None where they can."""
    parallel = config.moe_parallel_config
    is_swiglu = config.activation == MoEActivation.SWIGLUOAI
    clamps = (config.swiglu_limit, config.swiglu_alpha, config.swiglu_beta)
    reasons = (
        (
            not is_swiglu and any(value is not None for value in clamps),
            f"{config.activation.value} with a clamp (swiglu_limit, alpha or beta)",
        ),
        (
            config.swiglu_beta not in (None, 1.0),
            f"swigluoai adds 1 to up, the model {config.swiglu_beta}",
        ),
        (
            config.in_dtype not in _DTYPES,
            f"the dtype is {config.in_dtype}; float16 and bfloat16 are served",
        ),
        (parallel.enable_eplb, "EPLB moves experts' weights between calls"),
        (
            parallel.use_all2all_kernels,
            f"expert parallelism by {parallel.all2all_backend}, not over tensor parallel ranks",
        ),
        (config.moe_backend != "auto", f"moe_backend={config.moe_backend} names other kernels"),
    )
    reason = next((reason for applies, reason in reasons if applies), None)
    if reason is None:
        _, reason = TileOpsExperts.is_supported_config(
            TileOpsExperts, config, None, None, TileOpsExperts.activation_format()
        )
    return reason


# vLLM compiles a CPU model into one graph for all token counts: the node is opaque, so that each
# call chooses its kernels by its own token count.
_library = torch.library.Library("tileops_cpp_vllm", "DEF")
_library.define(
    "experts(Tensor(a!) output, Tensor hidden_states, Tensor topk_weights, Tensor topk_ids, "
    "str layer_name) -> ()"
)


def _run_layer(output, hidden_states, topk_weights, topk_ids, layer_name):
    runner = get_forward_context().no_compile_layers[layer_name]
    experts = runner.routed_experts.quant_method.moe_kernel.fused_experts
    experts.run(output, hidden_states, topk_weights, topk_ids)


_library.impl("experts", _run_layer, "CPU")
torch.library.register_fake("tileops_cpp_vllm::experts", lambda *_: None)
