# SPDX-License-Identifier: Apache-2.0
"""What calls leave behind: records, prices, explanations, kernels, sub-ops, graphs."""
import json

import numpy as np
import pytest

import tileops_cpp
from conftest import ExpertInputs
from tileops_cpp import MGroupedLayout, moe


def test_there_is_no_record_before_a_call(expert_mlp):
    for ask in (expert_mlp.last_call, expert_mlp.eval_roofline, expert_mlp.explain):
        with pytest.raises(RuntimeError, match="MoEExpertMLPFwdOp: no call has completed yet"):
            ask()
    assert expert_mlp.serving_target() is None


def test_a_record(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    record = expert_mlp.last_call()
    assert (record.op, record.device, record.served_by) == ("MoEExpertMLPFwdOp", "cpu", "builtin")
    assert record.indices == {"E": 3, "P": 7, "H": 12, "F": 7, "D": "float16"}
    assert record.index("P") == 7 and record.value("layout") == MGroupedLayout.contiguous()
    facts = record.tensors["w_down"]
    assert (facts.dtype, facts.shape, facts.strides) == ("float16", (3, 12, 7), (84, 7, 1))
    assert record.tensors["b_down"] is None
    assert record.written == ["out"] and record.effect_branch == ""
    read, written = record.traffic
    assert read == sum(t.nbytes for t in expert_inputs) and written == 7 * 12 * 2
    with pytest.raises(ValueError, match="MoEExpertMLPFwdOp: the signature has no index Z"):
        record.index("Z")
    out = np.empty_like(expert_inputs.x)
    expert_mlp(*expert_inputs, out=out)
    assert expert_mlp.last_call().effect_branch == "out" and record.effect_branch == ""


def test_stages_hold_the_sub_ops_own_records(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    stages = expert_mlp.last_call().stages
    assert list(stages) == ["gate_up", "down"]
    assert [len(records) for records in stages.values()] == [1, 1]
    assert stages["gate_up"][0].op == "MoEGroupedGemmFwdOp"
    interface, implementation, _ = stages["down"][0].kernels[0]
    assert interface == "grouped_gemm" and implementation in (
        key for key in ("reference", "cpu_avx512", "cpu_avx2", implementation)
    )


def test_metadata_is_read_later(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    record = expert_mlp.last_call()
    assert np.array_equal(np.asarray(record.metadata("layout_metadata")), expert_inputs.ends)
    with pytest.raises(ValueError, match="x is no metadata input"):
        record.metadata("x")


def test_metadata_outlives_the_callers_array(expert_mlp):
    inputs = ExpertInputs()
    wanted = inputs.ends.copy()
    expert_mlp(inputs.x, inputs.w_gate_up, inputs.w_down, inputs.ends.copy())
    assert np.array_equal(np.asarray(expert_mlp.last_call().metadata("layout_metadata")), wanted)


def test_the_price_is_that_of_the_routes(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    cost = expert_mlp.eval_roofline()
    # Two of three experts have rows: 7 rows of three products.
    assert cost.flops >= 7 * 6 * 12 * 7
    assert cost == expert_mlp.last_call().eval_roofline() and cost._fields == ("flops", "bytes")
    hit = 2 * (2 * 7 * 12 + 12 * 7) * 2
    assert cost.bytes == pytest.approx(hit + 2 * 7 * 12 * 2 + 3 * 4, rel=0.05)


def test_time_is_recorded_where_asked(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    assert expert_mlp.last_call().elapsed_us is None
    tileops_cpp.set_call_timing(True)
    try:
        expert_mlp(*expert_inputs)
        assert expert_mlp.last_call().elapsed_us > 0
    finally:
        tileops_cpp.set_call_timing(False)


def test_explain(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    why = expert_mlp.explain()
    assert (why.op, why.target, [s.stage for s in why.stages]) == (
        "MoEExpertMLPFwdOp", "builtin", ["gate_up", "down"])
    choice = why.stages[0].choices[0]
    chosen = [candidate.key for candidate in choice.candidates if candidate.chosen]
    assert chosen == [expert_mlp.last_call().stages["gate_up"][0].kernels[0][1]]
    assert all(candidate.reason for candidate in choice.candidates)
    assert str(why) == why.text() and "gate_up = MoEGroupedGemmFwdOp: target builtin" in str(why)


def test_held_sub_ops_are_the_same_objects_each_time(expert_mlp, expert_inputs):
    gate_up, down = expert_mlp.held_delegates()
    assert (gate_up.stage, gate_up.identity, down.stage) == ("gate_up", None, "down")
    assert type(gate_up.op) is moe.MoEGroupedGemmFwdOp
    assert expert_mlp.held_delegates()[0].op is gate_up.op
    expert_mlp(*expert_inputs)
    record = expert_mlp.last_call().stages["gate_up"][0]
    assert gate_up.op.last_call().indices == record.indices
    assert gate_up.op.key != down.op.key


def test_sub_ops_that_a_call_decides_come_in_build_order():
    op = moe.FusedMoEExpertsFwdOp(small_route="never")
    for experts in (4, 2):
        inputs = ExpertInputs((1,) * experts)
        weights, ids = np.ones((experts, 1), np.float32), np.zeros((experts, 1), np.int32)
        op(inputs.x, weights, ids, inputs.w_gate_up, inputs.w_down)
    held = [(h.stage, h.identity) for h in op.held_delegates()]
    assert held[:2] == [("pre_permute", 4), ("pre_permute", 2)]


def test_kernels_and_entries(expert_mlp, expert_inputs):
    assert list(expert_mlp.iter_kernels()) == []
    expert_mlp(*expert_inputs)
    kernels = list(expert_mlp.iter_kernels())
    gate_up, down = (held.op for held in expert_mlp.held_delegates())
    entries = gate_up.built_entries("grouped_gemm") + down.built_entries()
    assert [entry.kernel for entry in entries] == kernels and len(set(kernels)) == 2
    assert isinstance(kernels[0].config, dict) and isinstance(kernels[0].tunable, bool)
    assert expert_mlp.built_entries() == []
    with pytest.raises(ValueError, match="declares no kernel interface none_such"):
        gate_up.built_entries("none_such")
    assert isinstance(gate_up.kernel_config(), list)


def test_a_forced_implementation_serves_the_sub_ops_too(expert_inputs):
    op = moe.MoEExpertMLPFwdOp(MGroupedLayout.contiguous(), implementation="reference")
    op(*expert_inputs)
    assert {r.kernels[0][1] for s in op.last_call().stages.values() for r in s} == {"reference"}


def test_tuned_mode_reaches_what_is_held(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    assert not expert_mlp.tuned
    expert_mlp.request_tune()
    assert expert_mlp.tuned and all(held.op.tuned for held in expert_mlp.held_delegates())
    expert_mlp(*expert_inputs)


def test_a_trace_holds_the_leaves_by_their_keys(expert_mlp, expert_inputs):
    graph = expert_mlp.trace(*expert_inputs)
    nodes = json.loads(graph.json())["nodes"]
    assert [node["name"] for node in nodes] == ["tileops::moe_grouped_gemm_fwd"] * 2
    assert [node["key"] for node in nodes] == [h.op.key for h in expert_mlp.held_delegates()]
    assert "digraph" in graph.dot() and str(graph) == graph.text()
    with pytest.raises(RuntimeError, match="no call has completed"):
        expert_mlp.last_call()
    assert "moe_grouped_gemm_fwd_out" in expert_mlp.trace(
        *expert_inputs, out=np.empty_like(expert_inputs.x)).text()


def test_a_failed_call_leaves_the_record(expert_mlp, expert_inputs):
    expert_mlp(*expert_inputs)
    before = expert_mlp.last_call().indices
    with pytest.raises(TypeError):
        expert_mlp(expert_inputs.x)
    assert expert_mlp.last_call().indices == before
