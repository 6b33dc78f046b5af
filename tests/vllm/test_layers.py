# SPDX-License-Identifier: Apache-2.0
"""The plugin's layers in this process: what is refused, weights reloaded, ids of other ranks."""
import dataclasses
import os

os.environ.update(
    TILEOPS_VLLM="1",
    VLLM_ENABLE_V1_MULTIPROCESSING="0",
    VLLM_CPU_KVCACHE_SPACE="1",
    VLLM_ALLOW_INSECURE_SERIALIZATION="1",
)

import pytest
import tiny_models
import torch
import vllm
from vllm.model_executor.layers.fused_moe.activation import MoEActivation

import tileops_cpp.vllm
from tileops_cpp import _vllm_experts
from tileops_cpp.moe import PackedExperts


def serve(folder, **options):
    return vllm.LLM(
        str(folder),
        **{"dtype": "bfloat16", **options},
        skip_tokenizer_init=True,
        max_model_len=128,
        max_num_seqs=8,
        max_logprobs=tiny_models.VOCABULARY,
        logprobs_mode="raw_logits",
        enable_prefix_caching=False,
        enforce_eager=True,
    )


def last_logits(llm):
    sampling = vllm.SamplingParams(
        temperature=0, max_tokens=1, logprobs=tiny_models.VOCABULARY, detokenize=False
    )
    prompts = [{"prompt_token_ids": ids} for ids in tiny_models.prompts(seed=1)]
    return [
        {token: entry.logprob for token, entry in answer.outputs[0].logprobs[0].items()}
        for answer in llm.generate(prompts, sampling, use_tqdm=False)
    ]


def layers_of(model):
    return [module for module in model.modules() if hasattr(module, "w13_weight")]


@pytest.fixture(scope="module")
def llm(folders):
    return serve(folders["qwen3_moe"])


@pytest.fixture(scope="module")
def layer(llm):
    return llm.apply_model(layers_of)[0][0]


@pytest.fixture(scope="module")
def experts(layer):
    return layer.quant_method.moe_kernel.fused_experts


def routed(num_tokens, top_k, num_experts, hidden=128, seed=3):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(num_tokens, hidden, generator=generator).bfloat16()
    weights = torch.rand(num_tokens, top_k, generator=generator)
    ids = torch.randint(0, num_experts, (num_tokens, top_k), generator=generator)
    return x, weights, ids.int()


def apply(experts, x, weights, ids, expert_map=None, on_input=False):
    output = torch.full_like(x, float("nan"))
    unused = dict.fromkeys(
        ("w1", "w2", "a1q_scale", "a2_scale", "workspace13", "workspace2", "expert_tokens_meta")
    )
    experts.apply(
        output=output,
        hidden_states=x,
        topk_weights=weights,
        topk_ids=ids,
        activation=MoEActivation.SILU,
        global_num_experts=-1,
        expert_map=expert_map,
        apply_router_weight_on_input=on_input,
        **unused,
    )
    return output


def test_weights_are_kept_once(layer, experts):
    assert layer.w13_weight.numel() == layer.w2_weight.numel() == 0
    assert not any(sum((each.stride() for each in experts._weights), ()))
    assert PackedExperts.process_bytes() >= 2 * 3 * 16 * 128 * 96 * 2


@pytest.mark.parametrize("num_tokens", [1, 5, 300])
def test_an_expert_map_drops_what_other_ranks_compute(experts, num_tokens):
    x, weights, ids = routed(num_tokens, 4, 32)
    ids[0, 0] = -1
    expert_map = torch.full((32,), -1, dtype=torch.int32)
    expert_map[::2] = torch.arange(16, dtype=torch.int32)  # this rank has the even ones
    local = torch.where((ids < 0) | (ids % 2 == 1), -1, ids // 2)
    assert torch.equal(
        apply(experts, x, weights, ids, expert_map), apply(experts, x, weights, local)
    )
    kept = torch.where(local < 0, 0.0, weights)
    wanted = apply(experts, x, kept, local.clamp(min=0))
    got = apply(experts, x, weights, ids, expert_map)
    assert (got.float() - wanted.float()).norm() <= 1e-2 * wanted.float().norm()


def test_weights_that_vllm_applied_to_the_input_are_not_applied_again(experts):
    x, weights, ids = routed(6, 1, 16)
    wanted = apply(experts, x, torch.ones_like(weights), ids)
    assert torch.equal(apply(experts, x, weights, ids, on_input=True), wanted)
    assert not torch.equal(apply(experts, x, weights, ids), wanted)


def test_reloaded_weights_are_seen(folders, llm, layer, tmp_path):
    tiny_models.write("qwen3_moe", tmp_path / "other", seed=99)
    before = last_logits(llm)
    held = PackedExperts.process_bytes()
    llm.collective_rpc("reload_weights", kwargs={"weights_path": str(tmp_path / "other")})
    reloaded = last_logits(llm)
    assert PackedExperts.process_bytes() == held
    assert reloaded != before
    assert reloaded == last_logits(serve(tmp_path / "other"))


@pytest.mark.parametrize(
    "options, reason",
    [
        ({"dtype": "float32"}, "the dtype is torch.float32; float16 and bfloat16 are served"),
        ({"quantization": "fp8"}, r"model.layers.0.mlp.experts is quantised \(\w+\)"),
    ],
    ids=["float32", "fp8"],
)
def test_a_model_that_cannot_be_served_is_refused(folders, options, reason):
    with pytest.raises(ValueError, match=f"^TILEOPS_VLLM=1: {reason}; without TILEOPS_VLLM"):
        serve(folders["qwen3_moe"], **options)


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"activation": MoEActivation.SITU}, "SITU activation"),
        ({"swiglu_limit": 7.0}, "silu with a clamp"),
        (
            {"activation": MoEActivation.SWIGLUOAI, "swiglu_beta": 0.5},
            "swigluoai adds 1 to up, the model 0.5",
        ),
        ({"is_lora_enabled": True}, "LoRA"),
        ({"moe_backend": "triton"}, "moe_backend=triton names other kernels"),
    ],
    ids=["activation", "clamp", "beta", "lora", "backend"],
)
def test_configurations_that_are_refused(layer, change, reason):
    assert _vllm_experts.refusal(layer.moe_config) is None
    assert reason in _vllm_experts.refusal(dataclasses.replace(layer.moe_config, **change))


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"enable_eplb": True}, "EPLB moves experts' weights between calls"),
        ({"use_ep": True, "dp_size": 2}, "expert parallelism by"),
    ],
    ids=["eplb", "all2all"],
)
def test_parallel_layouts_that_are_refused(layer, change, reason):
    parallel = dataclasses.replace(layer.moe_config.moe_parallel_config, **change)
    config = dataclasses.replace(layer.moe_config, moe_parallel_config=parallel)
    assert reason in _vllm_experts.refusal(config)


def test_swigluoai_takes_the_model_s_numbers(layer):
    config = dataclasses.replace(
        layer.moe_config, activation=MoEActivation.SWIGLUOAI, swiglu_alpha=1.5, swiglu_limit=5.0
    )
    assert _vllm_experts.refusal(config) is None
    activation = _vllm_experts.activation_of(config)
    assert (activation.alpha, activation.limit) == (1.5, 5.0)


def test_batch_invariance_is_the_op_s(monkeypatch, layer, experts):
    assert not experts._op.params["batch_invariant"]
    monkeypatch.setattr(vllm.envs, "VLLM_BATCH_INVARIANT", True, raising=False)
    made = type(experts)(layer.moe_config, experts.quant_config)
    assert made._op.params["batch_invariant"]


@pytest.mark.parametrize("word, on", [("", False), ("0", False), ("1", True)])
def test_the_switch(monkeypatch, word, on):
    monkeypatch.setenv("TILEOPS_VLLM", word)
    assert tileops_cpp.vllm.is_on() is on
    monkeypatch.delenv("TILEOPS_VLLM")
    assert not tileops_cpp.vllm.is_on()
    monkeypatch.setenv("TILEOPS_VLLM", "yes")
    with pytest.raises(ValueError, match="TILEOPS_VLLM is 0 or 1, got 'yes'"):
        tileops_cpp.vllm.register()
