# SPDX-License-Identifier: Apache-2.0
"""The few CUDA driver calls that the kernel experiments need, by ctypes."""
import ctypes

import torch

_cuda = ctypes.CDLL("libcuda.so.1")
_CLUSTER, _PROGRAMMATIC = 4, 6  # CUlaunchAttributeID


def _check(code, what):
    if code != 0:
        text = ctypes.c_char_p()
        _cuda.cuGetErrorString(code, ctypes.byref(text))
        raise RuntimeError(f"{what}: {text.value.decode()} ({code})")


class _Attribute(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint), ("pad", ctypes.c_uint), ("value", ctypes.c_uint * 16)]


class _Config(ctypes.Structure):
    _fields_ = [("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("smem", ctypes.c_uint),
                ("stream", ctypes.c_void_p), ("attrs", ctypes.POINTER(_Attribute)),
                ("num_attrs", ctypes.c_uint)]


class Module:
    def __init__(self, cubin):
        torch.cuda.current_stream()
        self._handle = ctypes.c_void_p()
        _check(_cuda.cuModuleLoadData(ctypes.byref(self._handle), cubin), "cuModuleLoadData")

    def function(self, name, smem_bytes=0):
        function = ctypes.c_void_p()
        _check(_cuda.cuModuleGetFunction(ctypes.byref(function), self._handle, name.encode()), name)
        if smem_bytes > 0:
            _check(_cuda.cuFuncSetAttribute(function, 8, smem_bytes), "cuFuncSetAttribute")
        return function


def launch(function, grid, block, smem_bytes, params, cluster=1, programmatic=False):
    attrs = (_Attribute * 2)()
    count = 0
    if cluster > 1:
        attrs[count].id = _CLUSTER
        attrs[count].value[0:3] = [cluster, 1, 1]
        count += 1
    if programmatic:
        attrs[count].id = _PROGRAMMATIC
        attrs[count].value[0] = 1
        count += 1
    config = _Config((grid, 1, 1), (block, 1, 1), smem_bytes,
                     torch.cuda.current_stream().cuda_stream, attrs, count)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(params), ctypes.c_void_p))
    _check(_cuda.cuLaunchKernelEx(ctypes.byref(config), function, arguments, None),
           "cuLaunchKernelEx")


def tensor_map(tensor, dims, strides_bytes, box, swizzle=3):
    """A tiled map of 16-bit elements; dims innermost first; swizzle 2: 64, 3: 128 bytes; L2 promotion 128."""
    rank = len(dims)
    storage = (ctypes.c_ubyte * 192)()
    address = (ctypes.addressof(storage) + 63) // 64 * 64
    dtype = 9 if tensor.dtype == torch.bfloat16 else 6
    _check(_cuda.cuTensorMapEncodeTiled(
        ctypes.c_void_p(address), dtype, rank, ctypes.c_void_p(tensor.data_ptr()),
        (ctypes.c_uint64 * rank)(*dims), (ctypes.c_uint64 * max(rank - 1, 1))(*strides_bytes),
        (ctypes.c_uint32 * rank)(*box), (ctypes.c_uint32 * rank)(*([1] * rank)), 0, swizzle, 2, 0),
        f"cuTensorMapEncodeTiled {dims} {strides_bytes} {box}")
    return (ctypes.c_uint64 * 16).from_buffer_copy(ctypes.string_at(address, 128))
