# SPDX-License-Identifier: Apache-2.0
# Sourced by ./test --all: the threads' tests under ThreadSanitizer, and 60 s of each fuzzer.
tileops_packages=(clang libclang-rt-14-dev)
tileops_install_packages

cmake/build.sh tsan threads_test
ctest --test-dir build/tsan --output-on-failure -R '^threads_test$'

cmake/build.sh fuzz fuzz_safetensors fuzz_dlpack fuzz_yaml fuzz_expr
ctest --test-dir build/fuzz/tests/fuzz --output-on-failure -j "$(nproc)"
