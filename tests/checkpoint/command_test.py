#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of `tileops run … --checkpoint` on layers that transformers wrote.

    python3 tests/checkpoint/command_test.py PATH_OF_TILEOPS
"""
import json
import math
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

COMMAND = sys.argv[1]
DATA = pathlib.Path(__file__).resolve().parent / "data"
ROUTED, SHARED = "FusedMoEFwdOp", "FusedMoESharedExpertFwdOp"


def call(command, op, checkpoint, layer, hidden, *more):
    done = subprocess.run(
        [COMMAND, command, op, "--checkpoint", checkpoint, "--layer", str(layer), "--hidden", hidden, *more],
        capture_output=True, text=True, timeout=120, check=False,
    )
    return done.returncode, done.stdout, done.stderr


def hidden_of(checkpoint, layer):
    return DATA / checkpoint / f"hidden.{layer}.safetensors"


def change_header(source, target, change):
    data = source.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


class CheckpointTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_json(self, op, checkpoint, layer, hidden, *more):
        code, out, err = call("run", op, checkpoint, layer, hidden, "--json", *more)
        self.assertEqual(code, 0, out + err)
        return json.loads(out)

    def refused(self, *args, says, code=2):
        got, out, err = call("run", *args)
        self.assertEqual(got, code, out + err)
        self.assertEqual(out, "")
        self.assertEqual(err.count("\n"), 1, err)
        for part in says:
            self.assertIn(part, err)

    def changed_hidden(self, change):
        path = self.folder / "hidden.safetensors"
        change_header(hidden_of("mixtral", 0), path, change)
        return path


class Layers(CheckpointTest):
    def check(self, op, checkpoint, layer, hidden, outputs):
        found = self.run_json(op, DATA / checkpoint, layer, hidden)
        checks = {check["output"]: check for check in found["checks"] if check["against"] != "reference"}
        self.assertEqual(list(checks), outputs)
        for check in checks.values():
            self.assertRegex(check["against"], r"^transformers 5\..*float32$")
            self.assertTrue(check["passed"])
            self.assertLess(check["error"], 5e-3)
        against = [check for check in found["checks"] if check["against"] == "reference"]
        self.assertTrue(against and all(check["passed"] for check in against))
        stages = found["report"]["stages"]
        self.assertTrue(stages and all("time_us" in stage for stage in stages), stages)
        return found

    def test_families_without_shared_experts(self):
        for checkpoint, hidden, layer in [
            ("mixtral", "mixtral", 0), ("mixtral", "mixtral", 1), ("mixtral_fused", "mixtral", 1),
            ("qwen3_moe", "qwen3_moe", 1), ("qwen3_moe_fused", "qwen3_moe_fused", 0),
            ("qwen3_moe_trained", "qwen3_moe_trained", 1), ("qwen3_moe_trained", "qwen3_moe_trained", 2),
            ("gpt_oss", "gpt_oss", 0), ("gpt_oss", "gpt_oss", 1),
        ]:
            with self.subTest(checkpoint=checkpoint, layer=layer):
                self.check(ROUTED, checkpoint, layer, hidden_of(hidden, layer), ["output"])

    def test_shared_experts_add_up_to_the_block(self):
        outputs = ["shared_output + routed_output", "routed_output", "shared_output"]
        for checkpoint in ["deepseek_v3", "deepseek_v3_fused"]:
            for layer in [1, 2]:
                with self.subTest(checkpoint=checkpoint, layer=layer):
                    self.check(SHARED, checkpoint, layer, hidden_of("deepseek_v3", layer), outputs)
        self.check(SHARED, "mixtral", 0, hidden_of("mixtral", 0), ["routed_output"])

    def test_fused_and_per_expert_files_have_one_checksum(self):
        sums = [
            self.run_json(ROUTED, DATA / checkpoint, 0, hidden_of("mixtral", 0))["outputs"]["output"]["checksum"]
            for checkpoint in ["mixtral", "mixtral_fused"]
        ]
        self.assertEqual(sums[0], sums[1])

    def test_text_report(self):
        code, out, err = call("run", ROUTED, DATA / "gpt_oss", 1, hidden_of("gpt_oss", 1))
        self.assertEqual((code, err), (0, ""), out)
        for part in ["(gpt_oss), layer 1", "route_select", "routed_experts", "xxh3:", "against reference: ok"]:
            self.assertIn(part, out)

    def test_without_expected_and_with_params(self):
        def hidden_alone(header):
            header["spare"] = header.pop("expected")

        self.refused(ROUTED, DATA / "mixtral", 0, self.changed_hidden(hidden_alone), says=["spare", "hidden, expected"])
        found = self.run_json(
            ROUTED, DATA / "mixtral", 0, hidden_of("mixtral", 0), "--param", "return_routing=true")
        self.assertEqual(found["outputs"]["tokens_per_expert"]["tensor"], "int32[4]")
        self.assertIn("top_k=2", found["params"])

    def test_packed_weights_memory_and_router(self):
        for op, checkpoint, layer in [(ROUTED, "mixtral", 0), (SHARED, "deepseek_v3", 1)]:
            hidden = hidden_of(checkpoint, layer)
            plain = self.run_json(op, DATA / checkpoint, layer, hidden)
            packed = self.run_json(op, DATA / checkpoint, layer, hidden, "--pack")
            weights = [math.prod(json.loads(re.search(r"\[.*", facts)[0])) * 2
                       for name, facts in plain["inputs"].items() if name.endswith(("w_gate_up", "w_down"))]
            self.assertEqual(len(weights), 2 if op == ROUTED else 4)
            self.assertEqual(plain["memory"]["packed_bytes"], 0)
            self.assertGreaterEqual(packed["memory"]["packed_bytes"], sum(weights))
            for found in plain, packed:
                self.assertGreater(found["memory"]["call_peak_bytes"], 0)
                self.assertGreater(found["router_logits_us"], 0)
        code, out, err = call("run", ROUTED, DATA / "mixtral", 0, hidden_of("mixtral", 0), "--pack")
        self.assertEqual((code, err), (0, ""))
        self.assertRegex(out, r"memory   .* MB at most for the first call, .*; packed weights .* MB, made in .* ms")
        self.assertRegex(out, r"router   logits in .* us, once")

    def test_a_wrong_layer_fails_the_check(self):
        code, out, err = call("run", ROUTED, DATA / "mixtral", 1, hidden_of("mixtral", 0))
        self.assertEqual((code, err), (1, ""))
        self.assertIn("FAILED", out)

    def test_explain_and_trace(self):
        for command, part in [("explain", "indexed_expert_mlp"), ("trace", "tileops::moe_fused_top_k_fwd")]:
            code, out, err = call(command, ROUTED, DATA / "gpt_oss", 0, hidden_of("gpt_oss", 0))
            self.assertEqual(code, 0, err)
            self.assertIn(part, out)


class BadInput(CheckpointTest):
    def copy_of(self, checkpoint):
        return pathlib.Path(shutil.copytree(DATA / checkpoint, self.folder / checkpoint))

    def test_layer_and_folder(self):
        hidden = hidden_of("deepseek_v3", 1)
        self.refused(SHARED, DATA / "deepseek_v3", 0, hidden, says=[
            "index.json: tensor model.layers.0.mlp.gate.weight: expected", "found none; 2 layers have one, from 1 to 2"])
        self.refused(SHARED, "/nowhere", 0, hidden, says=["OSError: /nowhere/config.json: cannot be opened"])
        self.refused(SHARED, DATA / "mixtral", "x", hidden, says=["--layer = x"])

    def test_model_type_and_shape(self):
        folder = self.copy_of("mixtral")
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
        self.refused(ROUTED, folder, 0, hidden_of("mixtral", 0), says=[
            "config.json: model_type: expected one of mixtral, qwen3_moe, deepseek_v3, gpt_oss, found \"llama\""])
        (folder / "config.json").write_text(json.dumps(config | {"intermediate_size": 25}))
        self.refused(ROUTED, folder, 0, hidden_of("mixtral", 0), says=[
            "model-00001-of-00002.safetensors: tensor model.layers.0.block_sparse_moe.experts.0.w1.weight: "
            "expected bfloat16 or float16[25, 40], found bfloat16[24, 40]"])

    def test_hidden_states(self):
        def retype(header):
            header["hidden"]["dtype"] = "F16"

        def rename(header):
            header["x"] = header.pop("hidden")

        expected = "tensor hidden: expected bfloat16[..., 40], found "
        self.refused(ROUTED, DATA / "mixtral", 0, self.changed_hidden(retype), says=[expected + "float16[2, 9, 40]"])
        self.refused(ROUTED, DATA / "mixtral", 0, self.changed_hidden(rename), says=[expected + "none"])
        self.refused(ROUTED, DATA / "mixtral", 0, "/nowhere.safetensors", says=["/nowhere.safetensors"])

    def test_ops_that_do_not_compute_it(self):
        self.refused("MoEExpertMLPFwdOp", DATA / "mixtral", 0, hidden_of("mixtral", 0), says=["is for " + ROUTED])
        self.refused(ROUTED, DATA / "deepseek_v3", 1, hidden_of("deepseek_v3", 1), says=["shared experts", "run " + SHARED])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
