#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_vllm.sh [WHEEL]: tiny models served by vLLM on the CPU with this library's experts; and, since this
# environment has a newer torch than the wheel's adapter is built with, the contracts of operators and of compilation.
# WHEEL is the package tileops-cpp; without it one is built. cmake/make_venv.sh makes the environment.
set -euo pipefail
wheel=${1:+$(realpath -s "$1")}
cd "$(dirname "$0")/.."
venv=build/venv/vllm

pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

cmake/make_venv.sh vllm
if [ -z "$wheel" ]; then
  rm -rf build/wheel
  pip wheel -q --no-deps -w build/wheel ./python
  wheel=$(realpath build/wheel/*.whl)
fi
pip install -q --no-deps --force-reinstall "$wheel"
"$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" --dist loadfile tests/vllm
"$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" python/tests/test_opcheck.py python/tests/test_compile.py
