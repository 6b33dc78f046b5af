#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Sourced by ./test --gpu: the programs *_gpu_test, one at a time, each with a watchdog; then a part of their grid under
# compute-sanitizer. Exit code 2 where there is no GPU. What skips itself (a second GPU that is not there) is listed.
if [ ! -e /dev/nvidia0 ] && [ ! -e /dev/dxg ]; then
  echo "./test --gpu: there is no GPU here (no /dev/nvidia0); ./test runs everything that needs none" >&2
  exit 2
fi
tileops_install_packages
cmake/build.sh dev -DTILEOPS_GPU_TESTS=ON gpu_tests
log=build/dev/gpu_tests.log
code=0
ctest --test-dir build/dev -L gpu --no-tests=error --output-on-failure --verbose > "$log" 2>&1 || code=$?
grep -E '^[0-9]+: .*(error:|Failure)|tests passed|\*\*\*|Total Test time' "$log" || true
grep -E 'SKIPPED|^[0-9]+: .*Skipped' "$log" | sort -u | sed 's/^/skipped: /' || true
[ "$code" = 0 ] || { echo "./test --gpu: failed; the whole log is $log" >&2; exit 1; }

# Accesses out of bounds (memcheck), hazards in shared memory (racecheck). racecheck does not see that a barrier at which
# one lane arrives for its warp orders what the other lanes read; the ring of indexed_expert_mlp has such barriers.
if ! command -v compute-sanitizer > /dev/null; then
  echo "skipped: compute-sanitizer is not on PATH" >&2
  return
fi
grid='*SmallWorkloads*:Layouts/*/tight:Layouts/*/masked_128:Layouts/*/split_along_k:Layouts/*/split_wide:OddSizes/*/odd_features:*DownThatAwaitsRows*'
sanitize() {
  local tool=$1 op
  shift
  for op in "$@"; do
    echo "$tool $op"
    compute-sanitizer --tool "$tool" --error-exitcode 9 "build/dev/tileops/ops/moe/$op/${op}_gpu_test" \
      --gtest_filter="$grid" > "$log" 2>&1 || {
      grep -E '=========|error:|Failure' "$log" | head -40
      echo "./test --gpu: $tool of $op failed; the whole log is $log" >&2
      exit 1
    }
  done
}
ops=(fused_topk grouped_gemm permute_align post_permute pre_permute shared_expert_mlp)
sanitize memcheck "${ops[@]}" indexed_expert_mlp expert_mlp
sanitize racecheck "${ops[@]}"
