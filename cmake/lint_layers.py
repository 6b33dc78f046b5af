#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the arrows between layers, third-party headers out of ours, and a licence line in each file.

    python3 cmake/lint_layers.py      prints one line a fault; exit code 1 where there is any
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent

# Folder of tileops/ -> the folders that it may include.
LAYERS = {
    "core": {"core"},
    "cpu": {"core", "cpu"},
    "spec": {"core", "spec"},
    "dispatch": {"core", "cpu", "spec", "dispatch"},
    "cuda": {"core", "dispatch", "cuda"},
    "op": {"core", "spec", "dispatch", "op"},
    "record": {"core", "spec", "dispatch", "op", "record"},
    "perf": {"core", "cpu", "cuda", "spec", "dispatch", "op", "perf"},
    "ops": {"core", "cpu", "cuda", "spec", "dispatch", "op", "perf", "ops"},
    "checkpoint": {"core", "cpu", "spec", "dispatch", "op", "ops", "checkpoint"},
}
# Levels of tileops/device, lowest first; each includes itself and those below.
LEVELS = ["ptx", "mma", "pipeline", "tile", "epilogue", "skeleton"]

THIRD_PARTY = re.compile(r"(fmt|nlohmann|yaml-cpp|CLI|hwy|gtest|gmock|benchmark)/|cuda|nvrtc|xxhash|torch")
THIRD_PARTY_HEADERS = {"tileops/core/check.h"}  # private to the sources, and never installed
LICENSED = {".h", ".cc", ".cuh", ".py", ".pyi", ".sh", ".cmake", ".yaml", ".yml"}
LICENSED_NAMES = {"CMakeLists.txt", "run", "test"}

INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^">]+)[">]')


def tracked():
    listing = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    names = listing.stdout.decode().split("\0")
    return [pathlib.PurePosixPath(name) for name in names if name and (ROOT / name).is_file()]


def includes(path):
    for number, line in enumerate((ROOT / path).read_text(encoding="utf-8").splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == "<", match[2]


def is_test(path):
    return path.stem.endswith(("_test", "_testing", "_bench"))


def device_fault(path, target):
    level, parts = path.parts[2], target.split("/")
    if parts[:2] != ["tileops", "device"]:
        return f"device code includes {target}, which is no device code"
    if level in LEVELS and parts[2] in LEVELS and LEVELS.index(parts[2]) > LEVELS.index(level):
        return f"level {level} includes {target}, a higher level"
    return None


def layer_fault(path, target):
    """What is wrong with a file of tileops/<layer>/ including tileops/…; None where nothing is."""
    layer, parts = path.parts[1], target.split("/")
    if layer == "device":
        return device_fault(path, target)
    if len(parts) < 3:
        return f"layer {layer} includes {target}, a header for users"
    if parts[1] == "device":
        is_device_code = layer == "ops" and (path.suffix == ".cuh" or "_sm" in path.stem)
        return None if is_device_code else f"layer {layer} includes device code, {target}"
    if parts[1] not in LAYERS.get(layer, LAYERS.keys()):
        return f"layer {layer} includes {target}; it may include {', '.join(sorted(LAYERS[layer]))}"
    return None


def include_faults(path):
    is_header = path.suffix == ".h" and not path.name.endswith("-inl.h")
    for number, is_system, target in includes(path):
        if is_system:
            is_foreign = THIRD_PARTY.match(target) and is_header and not is_test(path)
            if is_foreign and str(path) not in THIRD_PARTY_HEADERS:
                yield f"{path}:{number}: a header of ours includes <{target}>; only a .cc may"
        elif target.startswith(("tools/", "bench/", "tests/", "python/")):
            yield f"{path}:{number}: the library includes {target}"
        elif target.startswith("tileops/"):
            fault = layer_fault(path, target)
            if fault:
                yield f"{path}:{number}: {fault}"


def licence_fault(path):
    if path.suffix not in LICENSED and path.name not in LICENSED_NAMES:
        return None
    head = (ROOT / path).read_text(encoding="utf-8", errors="replace").splitlines()[:2]
    if any("SPDX-License-Identifier: Apache-2.0" in line for line in head):
        return None
    return f"{path}:1: no SPDX-License-Identifier line"


def main():
    faults, count = [], 0
    for path in tracked():
        count += 1
        fault = licence_fault(path)
        if fault:
            faults.append(fault)
        is_layered = path.parts[0] == "tileops" and len(path.parts) > 2
        if is_layered and path.suffix in {".h", ".cc", ".cuh"} and not is_test(path):
            faults.extend(include_faults(path))
    for fault in faults:
        print(fault)
    print(f"layers: {count} files, {len(faults)} faults")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
