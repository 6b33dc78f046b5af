# SPDX-License-Identifier: Apache-2.0
"""Tensors of frameworks that have no C exchange API and no buffers: DLPack capsules."""
import sys

from tileops_cpp import _core

Tensor = _core.Tensor

_CUDA = 2


def _capsule(tensor, **kwargs):
    """The newest capsule that the tensor gives; older producers know no max_version."""
    try:
        return tensor.__dlpack__(max_version=(1, 1), **kwargs)
    except TypeError:
        return tensor.__dlpack__(**kwargs)


def _take_meta(tensor):
    dtype = str(tensor.dtype).rpartition(".")[2].replace("e4m3fn", "e4m3")
    return Tensor._meta(list(tensor.shape), list(tensor.stride()), dtype)


def take(tensor):
    """The library's view of a tensor, and whether the tensor is read-only."""
    if getattr(tensor, "is_meta", False):
        return _take_meta(tensor), False
    if tensor.__dlpack_device__()[0] == _CUDA:
        return Tensor._from_capsule(_capsule(tensor, stream=1))
    return Tensor._from_capsule(_capsule(tensor))


def give(tensor, like):
    """A tensor of the class `like` on the same memory; a Tensor where its framework takes none."""
    torch = sys.modules.get("torch")
    if tensor.device == "meta":
        if torch is None or not issubclass(like, torch.Tensor):
            return tensor
        return torch.empty_strided(
            tensor.shape, tensor.strides, dtype=getattr(torch, tensor.dtype), device="meta"
        )
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(like, numpy.ndarray):
        return tensor  # on a GPU: those of the CPU are given in C++
    root = sys.modules.get(like.__module__.partition(".")[0].replace("jaxlib", "jax"))
    if root is None:
        return tensor
    if root.__name__ == "jax":
        return root.dlpack.from_dlpack(tensor)
    from_dlpack = getattr(root, "from_dlpack", None)
    return tensor if from_dlpack is None else from_dlpack(tensor)


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule on the same memory (versioned where the consumer knows version 1). On a GPU, work that
    is put on the consumer's ``stream`` from now on comes after the tensor's: None is the legacy default stream."""
    if copy:
        raise BufferError("tileops_cpp.Tensor: it shares its memory; copy=True is not offered")
    if dl_device is not None and tuple(dl_device) != self._dlpack_device():
        raise BufferError(f"tileops_cpp.Tensor: it is on {self.device}, and is not copied elsewhere")
    return self._to_dlpack(max_version is not None and max_version[0] >= 1, 1 if stream is None else stream)


def _array(self, dtype=None, copy=None):
    """A NumPy array: on the same memory unless `dtype` or `copy` asks otherwise."""
    import numpy

    array = _core.array_of_tensor(self) if self.device == "cpu" else numpy.from_dlpack(self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = lambda self: self._dlpack_device()
Tensor.__array__ = _array
_core.set_tensor_protocol(take, give)
