#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/build.sh PRESET [-DNAME=VALUE...] [TARGET...]: configures and builds, quiet unless it fails.
set -euo pipefail
cd "$(dirname "$0")/.."
preset=$1
shift
variables=()
while [[ ${1:-} == -D* ]]; do
  variables+=("$1")
  shift
done
log=build/$preset.log
mkdir -p build

quietly() {
  "$@" > "$log" 2>&1 || {
    cat "$log" >&2
    exit 1
  }
}

echo "building $preset" >&2
quietly cmake --preset "$preset" "${variables[@]}"
if [ -t 1 ]; then
  cmake --build --preset "$preset" ${1:+--target "$@"}
else
  quietly cmake --build --preset "$preset" ${1:+--target "$@"}
fi
