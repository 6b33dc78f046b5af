#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_torch.sh PYTHON: the library beside PyTorch and transformers. PYTHON has torch, numpy, safetensors
# and transformers 5, as build/venv/test of cmake/test_python.sh has.
set -euo pipefail
python=$(realpath -s "$1")
cd "$(dirname "$0")/.."
cmake/build.sh dev call_server
server=build/dev/tests/torch/call_server
"$python" tests/torch/random_layers.py "$server"
"$python" tests/torch/greedy_generation.py "$server"
