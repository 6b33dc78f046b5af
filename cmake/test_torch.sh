#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_torch.sh [PYTHON]: the library beside PyTorch and transformers. PYTHON has torch, numpy, safetensors
# and transformers 5; without it, a virtual environment in build/venv_torch is made once.
set -euo pipefail
python=${1:+$(realpath -s "$1")}
cd "$(dirname "$0")/.."
if [ -z "$python" ]; then
  python=build/venv_torch/bin/python
  "$python" -c 'import torch, transformers, safetensors, numpy' 2> /dev/null || {
    python3 -m venv --clear build/venv_torch
    "$python" -m pip install -q torch==2.11.0 numpy safetensors 'transformers==5.17.*'
  }
fi
cmake/build.sh dev call_server
server=build/dev/tests/torch/call_server
"$python" tests/torch/random_layers.py "$server"
"$python" tests/torch/greedy_generation.py "$server"
