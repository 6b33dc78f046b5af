# SPDX-License-Identifier: Apache-2.0
# Sourced by ./test --all: what takes longer than an edit-test round.
tileops_packages=(clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14)
tileops_install_packages
cmake/check_format.sh
cmake/check_tidy.sh

cmake/build.sh asan
ctest --test-dir build/asan --output-on-failure -j "$(nproc)"
cmake/build.sh tsan threads_test
ctest --test-dir build/tsan --output-on-failure -R "^threads_test$"

cmake/build.sh fuzz fuzz_safetensors fuzz_dlpack fuzz_yaml fuzz_expr
ctest --test-dir build/fuzz/tests/fuzz --output-on-failure -j "$(nproc)"
