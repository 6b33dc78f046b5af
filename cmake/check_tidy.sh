#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy 14 over the framework's sources (.clang-tidy says which checks), with the dev build's compile
# commands, one a file; says so where it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-tidy-14 > /dev/null; then
  echo "tidy: clang-tidy-14 is not installed, left out"
  exit 0
fi
mkdir -p build
cmake --preset dev -B build/tidy -DTILEOPS_UNITY=OFF > build/tidy.log
mapfile -t files < <(git ls-files 'tileops/core/*.cc' 'tileops/spec/*.cc' 'tileops/dispatch/*.cc' \
                                  'tileops/op/*.cc' | grep -vE '_(test|bench)\.cc$')
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy-14 -p build/tidy --quiet 2> /dev/null
echo "tidy: ${#files[@]} files"
