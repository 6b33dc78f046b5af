# SPDX-License-Identifier: Apache-2.0
"""What the MoE family takes beside tensors: exchanges, packed experts, workspaces."""
import gc
import weakref

import numpy as np
import pytest

import definition
from conftest import ExpertInputs
from tileops_cpp import moe
from tileops_cpp.moe import FusedMoEExpertsFwdOp, FusedMoEFwdOp, PackedExperts, PrepareFinalize


@pytest.fixture
def layer_inputs():
    random = definition.rng(11)
    experts = ExpertInputs((2,) * 4, hidden=16, inter=8)
    hidden = random.normal(size=(9, 16)).astype(np.float16)
    gating = random.normal(size=(9, 4)).astype(np.float32)
    return hidden, gating, experts.w_gate_up, experts.w_down


class LocalIds(PrepareFinalize):
    """One rank of two, which has the experts from `first` on."""

    def __init__(self, first):
        self.first = first
        self.finalized = []

    def prepare(self, tokens, num_experts):
        assert num_experts == 4 and tokens.topk_weights.dtype == np.float32
        return tokens._replace(topk_ids=tokens.topk_ids - np.int32(self.first)), "state"

    def finalize(self, expert_output, state, tokens):
        self.finalized.append((state, tokens.topk_ids.min()))
        return expert_output


def test_an_exchange_of_ones_own(layer_inputs):
    hidden, gating, w_gate_up, w_down = layer_inputs
    whole = FusedMoEFwdOp(2)(*layer_inputs)
    parts = []
    for first in (0, 2):
        ours = LocalIds(first)
        layer = FusedMoEFwdOp(2, num_local_experts=2, prepare_finalize=ours)
        parts.append(layer(hidden, gating, w_gate_up[first : first + 2], w_down[first : first + 2]))
        assert ours.finalized[0][0] == "state" and ours.finalized[0][1] >= 0
    assert definition.error(parts[0].astype(np.float64) + parts[1], whole) < 2e-3


def test_faults_of_an_exchange(layer_inputs):
    class Broken(PrepareFinalize):
        def prepare(self, tokens, num_experts):
            return tokens

    with pytest.raises(TypeError, match=r"prepare returns \(RoutedTokens, state\)"):
        FusedMoEFwdOp(2, prepare_finalize=Broken())(*layer_inputs)

    class Raising(PrepareFinalize):
        def finalize(self, expert_output, state, tokens):
            raise LookupError("lost")

    with pytest.raises(LookupError, match="lost"):
        FusedMoEFwdOp(2, prepare_finalize=Raising())(*layer_inputs)


def test_an_exchange_lives_with_its_layer(layer_inputs):
    ours = PrepareFinalize()
    gone = weakref.ref(ours)
    layer = FusedMoEFwdOp(2, prepare_finalize=ours)
    del ours
    gc.collect()
    assert np.array_equal(layer(*layer_inputs), FusedMoEFwdOp(2)(*layer_inputs))
    assert gone() is not None
    del layer
    gc.collect()
    assert gone() is None


def test_injected_experts_are_held_and_must_agree(layer_inputs):
    experts = FusedMoEExpertsFwdOp(small_route="never")
    layer = FusedMoEFwdOp(2, experts=experts)
    assert layer.held_delegates()[1].op is experts
    layer(*layer_inputs)
    assert [len(r) for r in experts.last_call().stages.values()] == [1, 1, 1, 0]
    with pytest.raises(ValueError, match="routed_scaling_factor"):
        FusedMoEFwdOp(2, routed_scaling_factor=2.0, experts=experts)
    with pytest.raises(TypeError, match="injected as experts is of another type"):
        FusedMoEFwdOp(2, experts=PrepareFinalize())


def test_packed_experts(layer_inputs):
    _, _, w_gate_up, w_down = layer_inputs
    plain = FusedMoEFwdOp(2)(*layer_inputs)
    before = PackedExperts.process_bytes()
    with PackedExperts(w_gate_up, w_down) as packed:
        assert packed.bytes >= w_gate_up.nbytes + w_down.nbytes
        assert PackedExperts.process_bytes() == before + packed.bytes
        assert definition.error(FusedMoEFwdOp(2)(*layer_inputs), plain) < 2e-3
    assert packed.bytes == 0 and PackedExperts.process_bytes() == before
    with pytest.raises(ValueError, match="PackedExperts: w_gate_up and w_down must both be"):
        PackedExperts(w_gate_up[0], w_down)


def test_packed_experts_without_their_weights(layer_inputs):
    hidden, gating, w_gate_up, w_down = layer_inputs
    plain = FusedMoEFwdOp(2)(*layer_inputs)
    packed = PackedExperts(w_gate_up, w_down)
    stand_ins = packed.release_weights()
    assert [each.shape for each in stand_ins] == [w_gate_up.shape, w_down.shape]
    assert not any(sum((each.strides for each in stand_ins), ()))
    assert definition.error(FusedMoEFwdOp(2)(hidden, gating, *stand_ins), plain) < 2e-3
    packed.close()
    assert np.isnan(FusedMoEFwdOp(2)(hidden, gating, *stand_ins)).all()
    with pytest.raises(RuntimeError, match="PackedExperts.release_weights: it is closed"):
        packed.release_weights()


def test_a_workspace_of_the_callers(layer_inputs):
    layer = FusedMoEFwdOp(2)
    wanted = layer(*layer_inputs)
    size = FusedMoEExpertsFwdOp.workspace_bytes(9, 2, 4, 16, 8)
    workspace = np.full(size, 255, np.uint8)
    with moe.workspace(workspace):
        assert np.array_equal(layer(*layer_inputs), wanted)
    assert not np.all(workspace == 255), "the intermediates lie in it"
    workspace[:] = 255
    layer(*layer_inputs)
    assert np.all(workspace == 255), "and only while it is entered"
    with moe.workspace(np.empty(8, np.uint8)), pytest.raises(ValueError, match="workspace"):
        layer(*layer_inputs)


def test_intermediates_lie_in_a_block_that_the_process_keeps():
    inputs = ExpertInputs((512,), hidden=256, inter=256)
    weights, ids = np.ones((512, 1), np.float32), np.zeros((512, 1), np.int32)
    layer = FusedMoEExpertsFwdOp(small_route="never")
    layer(inputs.x, weights, ids, inputs.w_gate_up, inputs.w_down)
    kept = moe.kept_workspace_bytes()
    assert kept >= FusedMoEExpertsFwdOp.workspace_bytes(512, 1, 1, 256, 256)
    layer(inputs.x, weights, ids, inputs.w_gate_up, inputs.w_down)
    assert moe.kept_workspace_bytes() == kept
