# SPDX-License-Identifier: Apache-2.0
"""A tiny Mixtral of transformers, its experts computed by TileOPs C++: are the logits those of the eager experts?

    pip install . torch transformers && python examples/transformers_quickstart.py
"""
import torch
from transformers import AutoModelForCausalLM, MixtralConfig

import tileops_cpp.transformers  # noqa: F401  registers experts_implementation="tileops"

torch.manual_seed(0)
config = MixtralConfig(
    vocab_size=512,
    hidden_size=128,
    intermediate_size=192,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    num_local_experts=8,
    num_experts_per_tok=2,
)
model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
tokens = torch.randint(0, config.vocab_size, (2, 32))

with torch.no_grad():
    eager = model(tokens).logits.float()
    model.set_experts_implementation("tileops")
    ours = model(tokens).logits.float()

error = ((ours - eager).norm() / eager.norm()).item()
same = (ours.argmax(-1) == eager.argmax(-1)).float().mean().item()
print(f"logits {tuple(ours.shape)}: relative difference {error:.1e}, {same:.0%} of the best tokens equal")
raise SystemExit(error > 2e-2)
