#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# clang-tidy 14 over the framework's sources (.clang-tidy says which checks), five files at a time as the dev build
# compiles them: what most of a file's time goes to is its headers. Says so where it is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-tidy-14 > /dev/null; then
  echo "tidy: clang-tidy-14 is not installed, left out"
  exit 0
fi
mkdir -p build
cmake --preset dev -B build/tidy > build/tidy.log
mapfile -t units < <(find build/tidy/tileops/{core,spec,dispatch,op}/CMakeFiles/tileops_*.dir/Unity -name 'unity_*.cxx')
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-14 -p build/tidy --quiet \
  --extra-arg=-Wno-unused-command-line-argument --header-filter='tileops/.*\.(h|cc)$' --checks=-bugprone-suspicious-include 2> /dev/null
echo "tidy: $(cat "${units[@]}" | grep -c '#include "') files"
