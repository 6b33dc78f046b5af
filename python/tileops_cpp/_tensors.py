# SPDX-License-Identifier: Apache-2.0
"""Tensors of frameworks that have no C exchange API: DLPack capsules, and what those cannot say."""
import sys

from tileops_cpp import _core

Tensor = _core.Tensor

_CUDA = 2
# Element types that NumPy arrays hold by ml_dtypes and NumPy's DLPack cannot name.
_ML_DTYPES = {
    "bfloat16": ("int16", "bfloat16"),
    "float8_e4m3fn": ("uint8", "float8_e4m3"),
    "float8_e5m2": ("uint8", "float8_e5m2"),
}
_ML_NAMES = {ours: (bits, theirs) for theirs, (bits, ours) in _ML_DTYPES.items()}


def _capsule(tensor, **kwargs):
    """The newest capsule that the tensor gives; older producers know no max_version."""
    try:
        return tensor.__dlpack__(max_version=(1, 1), **kwargs)
    except TypeError:
        return tensor.__dlpack__(**kwargs)


def _take_meta(tensor):
    dtype = str(tensor.dtype).rpartition(".")[2]
    dtype = _ML_DTYPES.get(dtype, (None, dtype))[1]
    return Tensor._meta(list(tensor.shape), list(tensor.stride()), dtype)


def take(tensor):
    """The library's view of a tensor, and whether the tensor is read-only."""
    if getattr(tensor, "is_meta", False):
        return _take_meta(tensor), False
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(tensor, numpy.ndarray) and tensor.dtype.name in _ML_DTYPES:
        bits, dtype = _ML_DTYPES[tensor.dtype.name]
        view, read_only = Tensor._from_capsule(_capsule(tensor.view(bits)))
        return view._view_as(dtype), read_only
    if tensor.__dlpack_device__()[0] == _CUDA:
        return Tensor._from_capsule(_capsule(tensor, stream=1))
    return Tensor._from_capsule(_capsule(tensor))


def _give_numpy(numpy, tensor):
    if tensor.dtype in _ML_NAMES:
        import ml_dtypes

        bits, dtype = _ML_NAMES[tensor.dtype]
        return numpy.from_dlpack(tensor._view_as(bits)).view(getattr(ml_dtypes, dtype))
    return numpy.from_dlpack(tensor)


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
        return _give_numpy(numpy, tensor)
    root = sys.modules.get(like.__module__.partition(".")[0].replace("jaxlib", "jax"))
    if root is None:
        return tensor
    if root.__name__ == "jax":
        return root.dlpack.from_dlpack(tensor)
    from_dlpack = getattr(root, "from_dlpack", None)
    return tensor if from_dlpack is None else from_dlpack(tensor)


def _dlpack(self, *, stream=None, max_version=None, dl_device=None, copy=None):
    """A DLPack capsule on the same memory (versioned where the consumer knows version 1)."""
    if copy:
        raise BufferError("tileops_cpp.Tensor: it shares its memory; copy=True is not offered")
    if dl_device is not None and tuple(dl_device) != self._dlpack_device():
        raise BufferError(f"tileops_cpp.Tensor: it is on {self.device}, and is not copied elsewhere")
    return self._to_dlpack(max_version is not None and max_version[0] >= 1)


def _array(self, dtype=None, copy=None):
    """A NumPy array: on the same memory unless `dtype` or `copy` asks otherwise."""
    import numpy

    array = _give_numpy(numpy, self)
    if dtype is not None and array.dtype != dtype:
        return array.astype(dtype)
    return array.copy() if copy else array


Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = lambda self: self._dlpack_device()
Tensor.__array__ = _array
_core.set_tensor_protocol(take, give)
