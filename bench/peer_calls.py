# SPDX-License-Identifier: Apache-2.0
"""The peers of bench/peers.py: what a PyTorch installation offers for an op.

Python TileOPs is the package `tileops` on PyPI, which needs `tilelang` and nvcc; it compiles at its first calls.
"""
import functools

import torch

# Experts of a layer: peers as (hidden, ids, weights) -> [T, H] ---------------------------------------


def silu_and_mul(x):
    gate, up = x.chunk(2, dim=-1)
    return torch.nn.functional.silu(gate) * up


def experts_loop(w_gate_up, w_down):
    def call(hidden, ids, weights):
        out = torch.zeros(hidden.shape, dtype=torch.float32, device=hidden.device)
        for expert in ids.unique().tolist():
            token, slot = (ids == expert).nonzero(as_tuple=True)
            y = silu_and_mul(hidden[token] @ w_gate_up[expert].T) @ w_down[expert].T
            out.index_add_(0, token, y.float() * weights[token, slot, None])
        return out.to(hidden.dtype)

    return call


def experts_grouped_mm(w_gate_up, w_down):
    num_experts = w_down.shape[0]

    def call(hidden, ids, weights):
        order = ids.flatten().argsort(stable=True)
        ends = torch.searchsorted(
            ids.flatten()[order].contiguous(),
            torch.arange(num_experts, dtype=ids.dtype, device=ids.device), right=True,
        ).int()
        rows = hidden[order // ids.shape[1]]
        y = torch._grouped_mm(rows, w_gate_up.transpose(1, 2), ends)
        y = torch._grouped_mm(silu_and_mul(y), w_down.transpose(1, 2), ends)
        y = torch.empty_like(y).index_copy_(0, order, y * weights.flatten()[order, None].to(y.dtype))
        return y.view(*ids.shape, -1).sum(1)

    return call


def experts_transformers(w_gate_up, w_down):
    from transformers.integrations.moe import grouped_mm_experts_forward

    class Experts(torch.nn.Module):
        has_gate, has_bias, is_transposed, is_concatenated = True, False, False, True
        _is_expert_parallel = has_post_expert_norm = False  # asked for since transformers 5.19 and 5.24

        def _apply_gate(self, gate_up):
            return silu_and_mul(gate_up)

    module = Experts()
    module.num_experts, module.gate_up_proj, module.down_proj = w_down.shape[0], w_gate_up, w_down
    return lambda hidden, ids, weights: grouped_mm_experts_forward(
        module, hidden, ids.long(), weights.to(hidden.dtype))


def experts_vllm(w_gate_up, w_down):
    from vllm import _custom_ops

    isa = "amx" if torch.cpu._is_amx_tile_supported() else "vec"
    packed = [_custom_ops.cpu_prepack_moe_weight(w, isa) for w in (w_gate_up, w_down)]

    def call(hidden, ids, weights):
        out = torch.empty_like(hidden)
        _custom_ops.cpu_fused_moe(out, hidden, *packed, None, None, weights, ids, "silu", isa)
        return out

    return call


def experts_onednn_f32(w_gate_up, w_down):
    """Weights widened ahead, twice the memory: oneDNN has no bf16 product below AVX-512."""
    w_gate_up, w_down = w_gate_up.float(), w_down.float()
    linear = lambda x, w: torch.ops.mkldnn._linear_pointwise(x, w, None, "none", [], "")

    def call(hidden, ids, weights):
        out = torch.zeros(hidden.shape, dtype=torch.float32)
        for expert in ids.unique().tolist():
            token, slot = (ids == expert).nonzero(as_tuple=True)
            y = linear(silu_and_mul(linear(hidden[token].float(), w_gate_up[expert])), w_down[expert])
            out.index_add_(0, token, y * weights[token, slot, None])
        return out.to(hidden.dtype)

    return call


def experts_tileops(w_gate_up, w_down):
    from tileops.moe import FusedMoEExpertsFwdOp

    op = FusedMoEExpertsFwdOp()
    return lambda hidden, ids, weights: op(hidden, w_gate_up, w_down, weights, ids)


def experts_ours(w_gate_up, w_down):
    from tileops_cpp import moe

    op = moe.FusedMoEExpertsFwdOp()
    return lambda hidden, ids, weights: op(
        hidden, topk_weights=weights, topk_ids=ids, w_gate_up=w_gate_up, w_down=w_down)


EXPERTS = {
    "torch loop": experts_loop,
    "torch._grouped_mm": experts_grouped_mm,
    "transformers grouped_mm": experts_transformers,
}
CUDA_EXPERTS = {"Python TileOPs": experts_tileops}
CPU_EXPERTS = {"vLLM, packed": experts_vllm, "oneDNN, float32": experts_onednn_f32}


# Grouped GEMM: peers as (a, ends) -> rows ---------------------------------------------------------------


def gemm_grouped_mm(b):
    return lambda a, ends: torch._grouped_mm(a, b.transpose(1, 2), ends)


def gemm_loop(b):
    def call(a, ends):
        out, begin = a.new_empty(a.shape[0], b.shape[1]), 0
        for expert, end in enumerate(ends.tolist()):
            if end > begin:
                torch.mm(a[begin:end], b[expert].T, out=out[begin:end])
            begin = max(begin, end)
        return out

    return call


def gemm_dense(b):
    """No peer but a ceiling: all rows by one expert's weights."""
    return lambda a, ends: a @ b[0].T


def gemm_tileops(b):
    from tileops.moe import ContiguousLayoutSpec, MoEGroupedGEMMFwdOp

    op = MoEGroupedGEMMFwdOp(ContiguousLayoutSpec.tight_physical_psum())
    return lambda a, ends: op(a, b, ends)


def gemm_ours(b):
    from tileops_cpp import MGroupedLayout, moe

    op = moe.MoEGroupedGemmFwdOp(MGroupedLayout.contiguous())
    return lambda a, ends: op(a, b, ends)


GEMMS = {
    "torch._grouped_mm": gemm_grouped_mm,
    "cuBLAS loop": gemm_loop,
    "dense (ceiling)": gemm_dense,
    "Python TileOPs": gemm_tileops,
}


# Masked slabs: peers as (a, counts) -> slabs ------------------------------------------------------------


def masked_bmm(b):
    """Every slab in full."""
    return lambda a, counts: torch.bmm(a, b.transpose(1, 2))


def masked_tileops(b):
    from tileops.moe import MaskedLayoutSpec, MoEGroupedGEMMFwdOp

    op_of = functools.cache(lambda max_m: MoEGroupedGEMMFwdOp(MaskedLayoutSpec(max_m)))
    return lambda a, counts: op_of(a.shape[1])(a, b, counts)


def masked_ours(b):
    from tileops_cpp import MGroupedLayout, moe

    op_of = functools.cache(lambda max_m: moe.MoEGroupedGemmFwdOp(MGroupedLayout.masked(max_m)))
    return lambda a, counts: op_of(a.shape[1])(a, b, counts)


MASKED_GEMMS = {"torch.bmm": masked_bmm, "Python TileOPs": masked_tileops}


# Shared expert: peers as hidden -> [T, H] ---------------------------------------------------------------


def shared_expert_torch(w_gate_up, w_down):
    return lambda hidden: silu_and_mul(hidden @ w_gate_up.T) @ w_down.T


def shared_expert_tileops(w_gate_up, w_down):
    from tileops.moe import SharedExpertMLPFwdOp

    op = SharedExpertMLPFwdOp()
    return lambda hidden: op(hidden, w_gate_up, w_down)


def shared_expert_ours(w_gate_up, w_down):
    from tileops_cpp import moe

    op = moe.SharedExpertMLPFwdOp()
    return lambda hidden: op(hidden, w_gate_up, w_down)


SHARED_EXPERTS = {"torch": shared_expert_torch, "Python TileOPs": shared_expert_tileops}

# Peers that bench/peers.py --in-turn compares with ours, the package tileops-cpp.
IN_TURN = {
    "experts": {"ours": experts_ours, "Python TileOPs": experts_tileops},
    "gemm": {"ours": gemm_ours, "Python TileOPs": gemm_tileops},
    "masked": {"ours": masked_ours, "torch.bmm": masked_bmm, "Python TileOPs": masked_tileops},
    "shared": {"ours": shared_expert_ours, "torch": shared_expert_torch, "Python TileOPs": shared_expert_tileops},
}
