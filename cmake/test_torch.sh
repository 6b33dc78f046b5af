#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_torch.sh [PYTHON]: the library beside PyTorch and transformers. PYTHON has torch, numpy, safetensors
# and transformers 5: else TILEOPS_VENV's, else that of build/venv/test (cmake/test_python.sh),
# else one of its own, made once.
set -euo pipefail
given=${1:+$(realpath -s "$1")}
cd "$(dirname "$0")/.."
venv=${TILEOPS_VENV:-build/venv/test}
python=${given:-$venv/bin/python}
if [ ! -e "$python" ]; then
  venv=build/venv/torch
  python=$venv/bin/python
  [ -e "$venv/complete" ] || {
    rm -rf "$venv"
    "${TILEOPS_PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check torch==2.11.0 numpy safetensors transformers
    touch "$venv/complete"
  }
fi
cmake/build.sh dev call_server
server=build/dev/tests/torch/call_server
"$python" tests/torch/random_layers.py "$server"
"$python" tests/torch/greedy_generation.py "$server"
