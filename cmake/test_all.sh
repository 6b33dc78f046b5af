#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by ./test --all: clang-tidy and clang-format where ./test left them out, the threads' tests under
# ThreadSanitizer, 60 s of each fuzzer under AddressSanitizer and UBSan, every program that a launch on a GPU can
# reach, compiled and judged; then Python, PyTorch, transformers and vLLM, each in an environment
# of its own under build/venv (11 GB), which are fetched while the compilers work.
tileops_packages=(clang libclang-rt-14-dev clang-tidy-14 clang-format-14 python3-venv python3-dev)
tileops_install_packages

step() {
  echo "== $1 ($((SECONDS / 60)) min $((SECONDS % 60)) s after the start)" >&2
}

cmake/make_venv.sh test plain vllm > build/venv.log 2>&1 &
environments=$!
trap 'kill "$environments" 2> /dev/null || true' EXIT

step "clang-format and clang-tidy"
cmake/check_format.sh
cmake/check_tidy.sh

step "benchmarks and GPU tests, compiled"
cmake/build.sh dev -DTILEOPS_BENCH=ON -DTILEOPS_GPU_TESTS=ON  # these compile; benchmarks are run by hand

step "threads under ThreadSanitizer"
cmake/build.sh tsan threads_test
ctest --test-dir build/tsan --output-on-failure -R '^threads_test$'

step "fuzzers"
cmake/build.sh fuzz fuzz_safetensors fuzz_dlpack fuzz_yaml fuzz_expr
ctest --test-dir build/fuzz/tests/fuzz --output-on-failure -j "$(nproc)"

step "GPU programs"
# Registers and shared memory of each; fails on a spill, on local memory and on a matrix kernel without wgmma.
code=0
build/dev/tileops/cuda/tileops_build_report || code=$?
if [ "$code" = 77 ]; then
  echo "SKIPPED: no GPU program was compiled, for the reason above; a machine with NVRTC must run this" >&2
elif [ "$code" != 0 ]; then
  exit 1
fi

step "Python's environments"
wait "$environments" || { cat build/venv.log >&2; exit 1; }

step "Python"
cmake/test_python.sh

step "PyTorch and transformers"
python=build/venv/test/bin/python
cmake/test_torch.sh "$python"
header=$("$python" -c 'import torch; print(f"{torch.__path__[0]}/include/ATen/dlpack.h")')
cmake/build.sh dev -DTILEOPS_DLPACK_HEADER="$header" dlpack_abi_test
ctest --test-dir build/dev --output-on-failure -R '^dlpack_abi$'

step "vLLM"
cmake/test_vllm.sh build/wheel/*.whl
step "done"
