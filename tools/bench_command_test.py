#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests of the subcommands that measure: tune, warm, bench, report, and run on a device that is not there.

    python3 tools/bench_command_test.py PATH_OF_TILEOPS PROJECT_ROOT
"""
import html.parser
import json
import pathlib
import unittest

from command_test import GEMM, MLP, SMALL, CommandTest, call

EXPERTS = "FusedMoEExpertsFwdOp"
PROFILE = {"device": "stated", "read_gbps": 10, "peak_gflops": 100}


def has_gpu():
    return pathlib.Path("/dev/nvidia0").exists()


class Table(html.parser.HTMLParser):
    """The texts of a page's cells, row by row, and what it would fetch."""

    def __init__(self, text):
        super().__init__()
        self.rows, self.fetched, self.inside = [], [], False
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.fetched += [value for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        self.inside = tag in ("td", "th")
        if self.inside:
            self.rows[-1].append("")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")


class Measuring(CommandTest):
    def setUp(self):
        super().setUp()
        self.cache = {"TILEOPS_CACHE_DIR": str(self.folder / "cache")}
        self.profile = self.folder / "profile.json"
        self.profile.write_text(json.dumps(PROFILE))

    def bench(self, *args, code=0):
        self.succeed("bench", *args, "--profile", self.profile, "--seconds", "0.01", "--json",
                     self.folder / "bench.json", code=code, **self.cache)
        return json.loads((self.folder / "bench.json").read_text())


class Bench(Measuring):
    def test_a_row_is_checked_timed_and_set_beside_its_floor(self):
        bench = self.bench(GEMM, "--workload", SMALL)
        (row,) = bench["rows"]
        self.assertEqual(row["name"], f"{GEMM}/{SMALL}")
        self.assertTrue(row["check"]["passed"], row)
        self.assertEqual(row["check"]["against"], "reference")
        self.assertGreater(row["single_us"], 0)
        self.assertGreater(row["back_to_back_us"], 0)
        floor = max(row["bytes"] / 10, row["flops"] / 100) * 1e-3
        self.assertAlmostEqual(row["floor_us"], floor, places=6)
        self.assertAlmostEqual(row["share"], floor / min(row["single_us"], row["back_to_back_us"]), places=6)
        self.assertRegex(row["kernels"][0], r"^grouped_gemm/cpu_blocked inner_loop=\w+ \((default|table)\)$")

    def test_composites_name_the_kernel_of_each_stage(self):
        (row,) = self.bench(MLP, "--workload", SMALL)["rows"]
        self.assertEqual([kernel.split(":")[0] for kernel in row["kernels"]], ["gate_up", "down"])

    def test_sizes_and_words_of_a_workload_can_be_others(self):
        (row,) = self.bench(EXPERTS, "--workload", "small-silu", "--size", "T=9", "--size", "routing=skewed")["rows"]
        self.assertEqual(row["shapes"]["hidden_states"], [9, 24])
        self.refuse("bench", EXPERTS, "--workload", "small-silu", "--size", "Q=9", says="has no Q; it has: T=5")
        self.refuse("bench", EXPERTS, "--workload", "small-silu", "--size", "T=many", says="T=128")

    def test_rows_of_a_file_and_a_row_that_cannot_be(self):
        rows = self.folder / "rows.json"
        rows.write_text(json.dumps({"rows": [
            {"name": "one", "op": EXPERTS, "workload": "small-silu", "sizes": ["T=2"]},
            {"name": "other", "op": EXPERTS, "workload": "nothing"}]}))
        bench = self.bench("--rows", rows, code=1)
        self.assertEqual([row["name"] for row in bench["rows"]], ["one", "other"])
        self.assertIn("there is no workload nothing", bench["rows"][1]["error"])
        rows.write_text("{}")
        self.refuse("bench", "--rows", rows, says="a list of rows is a JSON object with rows")

    def test_the_shipped_lists_of_rows_name_what_there_is(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        for name in ("h200", "cpu"):
            for row in json.loads((root / f"bench/rows/{name}.json").read_text())["rows"]:
                sizes = [word for size in row.get("sizes", []) for word in ("--size", size)]
                params = [word for param in row.get("params", []) for word in ("--param", param)]
                self.succeed("explain", row["op"], "--workload", row["workload"], *sizes, *params)

    def test_metadata_is_written_for_peers(self):
        (row,) = self.bench(GEMM, "--workload", SMALL, "--metadata", self.folder)["rows"]
        self.assertIn(b'"0.layout_metadata"', pathlib.Path(row["metadata_file"]).read_bytes())

    def test_packed_weights_are_named_with_their_memory(self):
        for options, packs in ((("--pack",), True), ((), False)):
            (row,) = self.bench(EXPERTS, "--workload", "small-silu", *options)["rows"]
            self.assertTrue(row["check"]["passed"], row)
            self.assertEqual(row["packed_bytes"] > 0, packs)

    def test_json_alone_goes_to_standard_output(self):
        out = self.succeed("bench", GEMM, "--workload", SMALL, "--seconds", "0.01", "--rest", "1", "--profile",
                           self.profile, "--json", **self.cache)
        self.assertEqual(len(json.loads(out)["rows"]), 1)
        self.assertEqual(json.loads(out)["rest_ms"], 1)

    def test_faults_are_one_line(self):
        self.refuse("bench", GEMM, "--workload", "none", says="there is no workload none")
        self.refuse("bench", "NoOp", says="NoOp")
        self.refuse("bench", "--workload", SMALL, says="name the op")
        self.refuse("bench", GEMM, "--device", "tpu", says="device must be cpu, meta, cuda or cuda:N")


class Report(Measuring):
    def test_html_holds_every_row_and_needs_no_other_file(self):
        page = self.folder / "bench.html"
        self.bench(GEMM, "--workload", SMALL, "--workload", "small-masked", "--html", page)
        again = self.folder / "again.html"
        self.succeed("report", self.folder / "bench.json", "--html", again)
        self.assertEqual(page.read_text(), again.read_text())
        table = Table(page.read_text())
        self.assertEqual([row[0] for row in table.rows], ["row", f"{GEMM}/{SMALL}", f"{GEMM}/small-masked"])
        self.assertEqual(table.fetched, [])

    def test_peers_faults_and_markup(self):
        path = self.folder / "stated.json"
        path.write_text(json.dumps({"version": "0", "device": "<b>", "rows": [
            {"name": "a & b", "single_us": 10, "back_to_back_us": 8, "peers": {
                "slow": {"single_us": 20, "back_to_back_us": 16}, "none": {"error": "ImportError: x"}}},
            {"name": "bad", "single_us": 1, "back_to_back_us": 1,
             "check": {"passed": False, "fault": "out: error 1 is above 0.01"}}]}))
        page = self.folder / "stated.html"
        self.succeed("report", path, "--html", page, code=1)
        table = Table(page.read_text())
        self.assertEqual(table.rows[0][6:8], ["slow", "none"])
        self.assertEqual(table.rows[1][0], "a & b")
        self.assertEqual(table.rows[1][6:8], ["16.0 (2.00x)", "ImportError: x"])
        self.assertIn("FAILED: out: error 1 is above 0.01", table.rows[2])
        self.assertIn("slow", self.succeed("report", path, code=1))
        self.refuse("report", self.folder / "absent.json", says="cannot be read")


class Tune(Measuring):
    def test_what_is_measured_serves_the_next_process(self):
        args = ("tune", MLP, "--workload", SMALL)
        first = self.succeed_json(*args, **self.cache)
        if not first["rows"][0]["kernels"]:
            self.skipTest("this CPU has one inner loop: nothing to tune")
        self.assertEqual({kernel["origin"] for kernel in first["rows"][0]["kernels"]}, {"tuned"})
        table = json.loads(pathlib.Path(first["table"]).read_text())
        self.assertEqual(len(table["entries"]), 2)
        second = self.succeed_json(*args, **self.cache)
        self.assertEqual({kernel["origin"] for kernel in second["rows"][0]["kernels"]}, {"table"})
        self.assertEqual([kernel["config"] for kernel in first["rows"][0]["kernels"]],
                         [kernel["config"] for kernel in second["rows"][0]["kernels"]])
        self.assertIn("(table)", self.succeed("explain", MLP, "--workload", SMALL, **self.cache))
        again = self.succeed_json(*args, "--again", **self.cache)
        self.assertEqual({kernel["origin"] for kernel in again["rows"][0]["kernels"]}, {"tuned"})

    def test_an_op_with_nothing_to_tune(self):
        out = self.succeed("tune", "FusedTopKFwdOp", "--workload", "small-softmax", **self.cache)
        self.assertIn("nothing to tune", out)

    def test_faults_are_one_line(self):
        self.refuse("tune", MLP, says=["give --workload LABEL", SMALL])
        self.refuse("tune", MLP, "--workload", "none", says="there is no workload none")


class Warm(Measuring):
    def test_builds_what_rows_launch_and_finds_it_the_next_time(self):
        got, out, err = call("warm", "FusedTopKFwdOp", "--json", **self.cache)
        if "NVRTC" in err:
            self.assertEqual((got, err.count("\n")), (1, 1))
            self.skipTest(err)
        self.assertEqual(got, 0, err)
        first = json.loads(out)
        self.assertTrue(first["programs"] and all(program["built"] for program in first["programs"]))
        self.assertTrue(list((self.folder / "cache/kernels").glob("*.kernel")))
        second = self.succeed_json("warm", "FusedTopKFwdOp", **self.cache)
        self.assertFalse(any(program["built"] for program in second["programs"]))

    def test_faults_are_one_line(self):
        code, _, err = call("warm", "--device", "sm_80")
        self.assertEqual((code, err.count("\n")), (2, 1), err)
        code, _, err = call("warm", TILEOPS_NVRTC="/nowhere.so")
        self.assertEqual((code, err.count("\n")), (1, 1), err)
        self.assertIn("/nowhere.so", err)


@unittest.skipIf(has_gpu(), "a GPU is here")
class NoGpu(Measuring):
    def test_is_one_line(self):
        for args in (("run", GEMM, "--workload", SMALL), ("bench", GEMM, "--workload", SMALL),
                     ("tune", GEMM, "--workload", SMALL)):
            self.refuse(*args, "--device", "cuda", says="libcuda.so.1")


if __name__ == "__main__":
    unittest.main(argv=["bench_command_test"], verbosity=1)
