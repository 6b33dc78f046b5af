#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the `tileops` command as a user has it: outputs, JSON, exit codes, error lines.

    python3 tools/command_test.py PATH_OF_TILEOPS PROJECT_ROOT
"""
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

COMMAND, ROOT = sys.argv[1], pathlib.Path(sys.argv[2])
EXAMPLE = ROOT / "examples/data/expert_mlp.safetensors"
MLP, GEMM = "MoEExpertMLPFwdOp", "MoEGroupedGemmFwdOp"
SMALL = "small-tight-psum"


def call(*args, **environment):
    done = subprocess.run(
        [COMMAND, *map(str, args)], capture_output=True, text=True, timeout=120,
        env={**os.environ, **environment}, check=False,
    )
    return done.returncode, done.stdout, done.stderr


def read_safetensors(path):
    data = pathlib.Path(path).read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + size]), data[8 + size :]


def write_safetensors(path, header, data):
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


class CommandTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def succeed(self, *args, code=0, **environment):
        got, out, err = call(*args, **environment)
        self.assertEqual(got, code, f"{args}: {out}{err}")
        return out

    def succeed_json(self, *args, code=0, **environment):
        return json.loads(self.succeed(*args, "--json", code=code, **environment))

    def refuse(self, *args, says, code=2):
        got, out, err = call(*args)
        self.assertEqual(got, code, f"{args}: {out}{err}")
        self.assertEqual(out, "", "nothing on standard output")
        self.assertEqual(err.count("\n"), 1, f"one line, not {err}")
        self.assertTrue(err.startswith("tileops"), err)
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, err)

    def changed_example(self, change, name="changed.safetensors"):
        header, data = read_safetensors(EXAMPLE)
        data = bytearray(data)
        change(header, data)
        path = self.folder / name
        write_safetensors(path, header, bytes(data))
        return path


class Usage(CommandTest):
    def test_version_and_help(self):
        self.assertRegex(self.succeed("--version"), r"^tileops \d+\.\d+\.\d+\n$")
        self.assertIn("explain", self.succeed("--help"))
        self.assertIn("--workload", self.succeed("run", "--help"))

    def test_nothing_asked(self):
        self.refuse(says="subcommand is required")

    def test_unknown_subcommand_and_option(self):
        self.refuse("frobnicate", says=["no subcommand frobnicate", "list, show"])
        self.refuse("list", "--frobnicate", says="--frobnicate")
        self.refuse("run", says="op is required")

    def test_spec_file_that_cannot_be_read(self):
        self.refuse("list", "--spec", "/nowhere.yaml", says=["OSError", "/nowhere.yaml"])


class List(CommandTest):
    def test_ops(self):
        text = self.succeed("list")
        self.assertIn(MLP, text)
        self.assertIn(GEMM, text)
        ops = {op["name"]: op for op in self.succeed_json("list")}
        self.assertEqual(ops[MLP]["kind"], "composite")
        self.assertEqual(ops[GEMM]["kind"], "leaf")
        self.assertEqual(ops[GEMM]["status"], "implemented")


class Show(CommandTest):
    def test_composite(self):
        text = self.succeed("show", MLP)
        for part in ["layout: MGroupedLayout", "gate_up: " + GEMM, "w_down", SMALL]:
            self.assertIn(part, text)
        shown = self.succeed_json("show", MLP)
        self.assertEqual([stage["stage"] for stage in shown["composition"]], ["gate_up", "down"])
        self.assertIsNone(shown["node"])

    def test_leaf(self):
        shown = self.succeed_json("show", GEMM)
        self.assertEqual(shown["node"], "tileops::moe_grouped_gemm_fwd")
        keys = {kernel["key"]: kernel for kernel in shown["kernels"]}
        self.assertTrue(keys["reference"]["general"])
        self.assertIn("grouped_gemm/reference: cpu  general", self.succeed("show", GEMM))

    def test_unknown_op(self):
        self.refuse("show", "NoSuchOp", says=["tileops show", "ValueError", "NoSuchOp", "nearest"])


class Validate(CommandTest):
    def test_embedded_entries_are_clean(self):
        self.assertIn(" 0 diagnostics", self.succeed("validate"))
        self.assertEqual(self.succeed_json("validate")["diagnostics"], [])

    def test_broken_file(self):
        path = self.folder / "broken.yaml"
        path.write_text("FooFwdOp: {family: foo, signature: {inputs: {x: {dtype: T, shape: '[M'}}}}\n")
        self.assertIn("broken.yaml:1: S", self.succeed("validate", path, code=1))
        found = self.succeed_json("validate", path, code=1)
        self.assertEqual(found["files"], 1)
        self.assertEqual(found["diagnostics"][0]["source"], str(path))
        path.write_text("")
        self.succeed("validate", path, code=1)

    def test_missing_file(self):
        self.refuse("validate", "/nowhere.yaml", says=["OSError", "/nowhere.yaml: cannot be read"])
        self.refuse("validate", self.folder, says="cannot be read")


class Run(CommandTest):
    def test_example_against_pytorch_and_reference(self):
        text = self.succeed("run", MLP, "--input", EXAMPLE)
        for part in ["gate_up = " + GEMM, "check    out against PyTorch", "check    out against reference", "xxh3:"]:
            self.assertIn(part, text)
        found = self.succeed_json("run", MLP, "--input", EXAMPLE, "--repeat", 3)
        self.assertEqual(len(found["times_us"]), 3)
        self.assertTrue(all(check["passed"] for check in found["checks"]))
        self.assertEqual([check["against"].split()[0] for check in found["checks"]], ["PyTorch", "reference"])
        stages = {stage["stage"]: stage for stage in found["report"]["stages"]}
        self.assertEqual(list(stages), ["gate_up", "down"])
        for stage in [found["report"], *stages.values()]:
            self.assertGreater(stage["time_us"], 0)
            self.assertGreater(stage["floor_us"], 0)
            self.assertGreater(stage["flops"], 0)
            self.assertGreater(stage["bytes"], 0)
        self.assertEqual(found["report"]["flops"], 37 * 6 * 96 * 72)

    def test_wrong_expected_output_fails_the_check(self):
        def negate(header, data):
            begin, _ = header["expected.out"]["data_offsets"]
            data[begin + 1] ^= 0x80
            data[begin + 3] ^= 0x80

        path = self.changed_example(negate)
        self.assertIn("check    out against PyTorch 2.11.0: FAILED", self.succeed("run", MLP, "--input", path, code=1))
        self.succeed("run", MLP, "--input", path, "--tolerance", "10")

    def test_same_bits_in_every_run(self):
        sums = {
            self.succeed_json("run", MLP, "--input", EXAMPLE, "--repeat", 1)["outputs"]["out"]["checksum"]
            for _ in range(2)
        }
        self.assertEqual(len(sums), 1)

    def test_output_file(self):
        path = self.folder / "y.safetensors"
        self.succeed("run", MLP, "--input", EXAMPLE, "--output", path)
        header, _ = read_safetensors(path)
        self.assertEqual(header["out"]["shape"], [37, 96])
        self.assertEqual(header["__metadata__"]["op"], MLP)
        self.refuse("run", MLP, "--input", EXAMPLE, "--output", "/nowhere/y.safetensors", says="/nowhere")

    def test_workload_seed_and_forced_implementation(self):
        found = self.succeed_json("run", MLP, "--workload", SMALL, "--implementation", "reference")
        self.assertEqual(found["reference_skipped"], "it is what ran")
        self.assertEqual(found["report"]["stages"][0]["kernels"], ["grouped_gemm/reference"])
        first = self.succeed_json("run", GEMM, "--workload", SMALL)
        other = self.succeed_json("run", GEMM, "--workload", SMALL, "--seed", 7)
        self.assertTrue(all(check["passed"] for check in first["checks"] + other["checks"]))
        self.assertNotEqual(first["outputs"], other["outputs"])

    def test_params_override_the_workload(self):
        found = self.succeed_json("run", GEMM, "--workload", SMALL, "--param", "out_dtype=float32")
        self.assertIn("out_dtype=float32", found["params"])
        self.assertTrue(found["outputs"]["out"]["tensor"].startswith("float32"))
        layout = "layout=contiguous{packing: aligned, metadata_kind: per_row, alignment: 8}"
        found = self.succeed_json("run", MLP, "--workload", SMALL, "--param", layout, "--param", "activation=swigluoai")
        self.assertIn("alignment: 8", found["params"])
        self.assertTrue(found["checks"][0]["passed"])
        self.assertLess(found["checks"][0]["compared"], 24 * 51, "padding rows are not compared")

    def test_stated_profile_that_is_too_low_shows_a_formula_error(self):
        path = self.folder / "slow.json"
        path.write_text('{"device": "slow", "read_gbps": 1e-9, "peak_gflops": 1e-9}')
        found = self.succeed_json("run", MLP, "--input", EXAMPLE, "--profile", path)
        self.assertIn("formula error", found["report"]["fault"])
        self.assertIsNone(found["report"]["share"])
        path.write_text("{}")
        self.refuse("run", MLP, "--input", EXAMPLE, "--profile", path, says="needs device")

    def test_unknown_names(self):
        self.refuse("run", "NoSuchOp", "--workload", SMALL, says="NoSuchOp")
        self.refuse("run", MLP, "--workload", "nosuch", says=["no workload nosuch", SMALL])
        self.refuse("run", MLP, "--workload", SMALL, "--target", "nosuch", says="nosuch")
        self.refuse("run", MLP, "--workload", SMALL, "--implementation", "nosuch", says="nosuch")
        self.refuse("run", MLP, says=["give --workload LABEL or --input FILE", SMALL])
        self.refuse("run", MLP, "--workload", SMALL, "--input", EXAMPLE, says="excludes")
        self.refuse("run", MLP, "--workload", SMALL, "--repeat", "0", says="--repeat")

    def test_params_that_cannot_be(self):
        run = ("run", GEMM, "--workload", SMALL, "--param")
        self.refuse(*run, "nosuch=1", says=["no parameter nosuch", "layout, activation, out_dtype"])
        self.refuse(*run, "layout", says="name=value")
        self.refuse(*run, "layout=masked", says="max_m")
        self.refuse(*run, "layout=masked{max_m: x}", says=["layout", "'x'"])
        self.refuse(*run, "layout=masked{max_m: 4", says="'}' is missing")
        self.refuse(*run, "layout=masked{max_m: 4} x", says="left over")
        self.refuse(*run, "layout=masked{max_m: 0}", says="max_m >= 1")
        self.refuse(*run, "activation=nosuch", says="nosuch")
        self.refuse(*run, "out_dtype=int32", says="out_dtype")


class RunInputFile(CommandTest):
    def refuse_file(self, path, says):
        self.refuse("run", MLP, "--input", path, says=says)

    def test_missing_and_malformed_files(self):
        self.refuse_file("/nowhere.safetensors", says="/nowhere.safetensors")
        path = self.folder / "x.safetensors"
        whole = EXAMPLE.read_bytes()
        for data in [b"", whole[:5], whole[:100], whole[:-1], struct.pack("<Q", 1 << 60) + b"{}", struct.pack("<Q", 4) + b"{{{{"]:
            path.write_bytes(data)
            self.refuse_file(path, says=["OSError", str(path)])

    def test_overlapping_tensors(self):
        def overlap(header, _):
            header["w_down"]["data_offsets"][0] -= 4
            header["w_down"]["data_offsets"][1] -= 4

        self.refuse_file(self.changed_example(overlap), says=["OSError", "w_down"])

    def test_wrong_shape(self):
        def reshape(header, _):
            header["w_down"]["shape"] = [6, 72, 96]

        self.refuse_file(self.changed_example(reshape), says=[MLP, "w_down", "[6, 72, 96]"])

    def test_wrong_dtype(self):
        def retype(header, _):
            header["layout_metadata"]["dtype"] = "F32"

        self.refuse_file(self.changed_example(retype), says=[MLP, "layout_metadata", "int32"])

    def test_missing_and_unknown_tensor(self):
        def rename(header, _):
            header["w_dwon"] = header.pop("w_down")

        self.refuse_file(self.changed_example(rename), says=["w_dwon", "no input"])

        def misname(header, _):
            header["b_down"] = header.pop("w_down")

        self.refuse_file(self.changed_example(misname), says=["w_down", "missing"])

    def test_file_of_another_op(self):
        self.refuse("run", GEMM, "--input", EXAMPLE, says=[MLP, GEMM])

    def test_params_of_the_file(self):
        def set_params(text):
            return lambda header, _: header["__metadata__"].__setitem__("params", text)

        self.refuse_file(self.changed_example(set_params("layout")), says="JSON object")
        self.refuse_file(self.changed_example(set_params('{"layout": 3}')), says="layout must be a text")
        self.refuse_file(self.changed_example(set_params('{"layout": "loose"}')), says="loose")


class Explain(CommandTest):
    def test_cpu(self):
        text = self.succeed("explain", MLP, "--workload", SMALL)
        self.assertIn("gate_up = " + GEMM, text)
        self.assertIn("->", text)
        found = self.succeed_json("explain", MLP, "--input", EXAMPLE)
        candidates = found["stages"][0]["choices"][0]["candidates"]
        self.assertEqual(sum(candidate["chosen"] for candidate in candidates), 1)

    def test_stated_devices(self):
        self.succeed("explain", GEMM, "--workload", SMALL, "--arch", "avx2")
        found = self.succeed_json("explain", GEMM, "--workload", SMALL, "--device", "cuda", "--arch", "sm_90a")
        reasons = {each["key"]: each for each in found["choices"][0]["candidates"]}
        self.assertFalse(reasons["reference"]["chosen"])
        shipped = ["--workload", "qwen3-30b-a3b-t32-uniform", "--size", "T=8192", "--device", "cuda", "--arch", "sm_90a"]
        self.assertIn("(default)", self.succeed("explain", "FusedMoEExpertsFwdOp", *shipped))
        self.assertIn("(table)", self.succeed("explain", "FusedMoEExpertsFwdOp", *shipped, "--device-name", "NVIDIA H200"))
        self.refuse("explain", GEMM, "--workload", SMALL, "--device-name", "NVIDIA H200", says="--arch")
        self.refuse("explain", GEMM, "--workload", SMALL, "--arch", "avx9", says=["avx9", "avx2"])
        self.refuse("explain", GEMM, "--workload", SMALL, "--device", "tpu", says="tpu")


class Trace(CommandTest):
    def test_formats(self):
        self.assertIn("tileops::moe_grouped_gemm_fwd", self.succeed("trace", MLP, "--workload", SMALL))
        self.assertTrue(self.succeed("trace", MLP, "--input", EXAMPLE, "--format", "dot").startswith("digraph"))
        graph = self.succeed_json("trace", MLP, "--workload", SMALL)
        self.assertEqual([node["stage"] for node in graph["nodes"]], ["gate_up", "down"])
        self.refuse("trace", MLP, "--workload", SMALL, "--format", "svg", says="svg")


class Env(CommandTest):
    def test_contents(self):
        found = self.succeed_json("env", TILEOPS_CACHE_DIR=str(self.folder))
        self.assertEqual(found["cache_folder"], str(self.folder))
        self.assertEqual(found["devices"][0]["device"], "cpu")
        self.assertIsNone(found["cpu_profile"])
        self.assertIn("cache ", self.succeed("env"))

    def test_backend_that_fails_to_load_is_listed(self):
        (self.folder / "bad.so").write_text("no library")
        found = self.succeed_json("env", TILEOPS_BACKEND_PATH=str(self.folder))
        self.assertIn("bad.so", found["backends"]["failed"][0]["path"])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
