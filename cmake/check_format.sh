#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Whether every tracked C++ file is as clang-format 14 writes it; says so where that is not installed.
set -euo pipefail
cd "$(dirname "$0")/.."
if ! command -v clang-format-14 > /dev/null; then
  echo "format: clang-format-14 is not installed, left out"
  exit 0
fi
mapfile -t files < <(git ls-files '*.h' '*.cc' '*.cuh')
clang-format-14 --dry-run --Werror "${files[@]}"
echo "format: ${#files[@]} files"
