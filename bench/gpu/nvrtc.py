# SPDX-License-Identifier: Apache-2.0
"""Compiles the device code with NVRTC for sm_90a, by ctypes. No GPU and no CUDA header is needed.

EXP in the environment adds options, for experiments with -D.
"""
import ctypes
import os
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def load_nvrtc():
    names = ["libnvrtc.so.13", "/usr/local/cuda/lib64/libnvrtc.so",
             "/usr/local/cuda/lib/libnvrtc.so"]
    try:
        import nvidia.cu13  # the wheel that torch brings
        names.insert(0, os.path.join(list(nvidia.cu13.__path__)[0], "lib", "libnvrtc.so.13"))
    except ImportError:
        pass
    for name in names:
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    raise RuntimeError("no libnvrtc found; looked for " + ", ".join(names))


def compile_kernel(include, name_expressions, verbose=False):
    """Returns (cubin, [lowered names], log, seconds)."""
    nvrtc = load_nvrtc()
    source = f'#include "{include}"\n'.encode()
    program = ctypes.c_void_p()
    begin = time.time()
    check = lambda code: None if code == 0 else fail(nvrtc, program, code)
    check(nvrtc.nvrtcCreateProgram(ctypes.byref(program), source, b"kernel.cu", 0, None, None))
    for name in name_expressions:
        check(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    options = ["--gpu-architecture=sm_90a", "--std=c++20", f"-I{ROOT}",
               "--ptxas-options=-v" if verbose else "--ptxas-options=-warn-spills"]
    options += os.environ.get("EXP", "").split()
    array = (ctypes.c_char_p * len(options))(*[o.encode() for o in options])
    check(nvrtc.nvrtcCompileProgram(program, len(options), array))
    seconds = time.time() - begin
    log = get_log(nvrtc, program)
    lowered = []
    for name in name_expressions:
        out = ctypes.c_char_p()
        check(nvrtc.nvrtcGetLoweredName(program, name.encode(), ctypes.byref(out)))
        lowered.append(out.value.decode())
    size = ctypes.c_size_t()
    check(nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size)))
    cubin = ctypes.create_string_buffer(size.value)
    check(nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin.raw, lowered, log, seconds


def get_log(nvrtc, program):
    size = ctypes.c_size_t()
    nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    nvrtc.nvrtcGetProgramLog(program, text)
    return text.value.decode()


def fail(nvrtc, program, code):
    raise RuntimeError(f"NVRTC error {code}:\n{get_log(nvrtc, program)}")
