# SPDX-License-Identifier: Apache-2.0
"""The library as PyTorch scripts call it: tensors in, tensors out, through a process and its files."""
import json
import os
import pathlib
import subprocess
import tempfile

from safetensors.torch import load_file, save_file


class LibraryError(Exception):
    """What the library refused, in its words."""


class Server:
    """A call_server process. `isa` limits the CPU's instructions, as TILEOPS_CPU_ISA does."""

    def __init__(self, program, isa=""):
        self.isa = isa
        memory = pathlib.Path("/dev/shm")
        self._folder = tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None)
        self._in, self._out = (os.path.join(self._folder.name, name) for name in ("in", "out"))
        environment = os.environ | {"TILEOPS_CPU_ISA": isa}
        self._process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.wait(timeout=60)
        self._folder.cleanup()

    def _ask(self, request, tensors, metadata):
        save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, self._in, metadata)
        self._process.stdin.write(f"{request} {self._in} {self._out}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline().rstrip("\n")
        if answer != "ok":
            raise LibraryError(answer or "the process ended")
        return load_file(self._out)

    def call(self, op, params, tensors, *, transposed=(), packed=False, implementation=""):
        """The op's outputs by name; `transposed` names inputs that reach it as strided views."""
        stored = {name: t.transpose(-1, -2) if name in transposed else t for name, t in tensors.items()}
        return self._ask("call", stored, {
            "op": op, "params": json.dumps(params), "transposed": json.dumps(list(transposed)),
            "packed": json.dumps(packed), "implementation": implementation})

    def layer(self, checkpoint, index, hidden):
        """What the MoE block of a checkpoint's layer gives on hidden states [T, H]."""
        return self._ask(f"layer {checkpoint} {index}", {"hidden": hidden}, {})["output"]
