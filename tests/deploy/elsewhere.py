"""An array that says it lives on another device, as a tensor of a GPU library would."""

from __future__ import annotations

import ctypes

import numpy as np

CUDA = 2
"""kDLCUDA."""


class _DLTensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device", ctypes.c_int32 * 2),
        ("ndim", ctypes.c_int32),
        ("dtype", ctypes.c_uint8 * 4),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    _fields_ = (("tensor", _DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class ElsewhereArray:
    """A float32 array, handed over through DLPack as one on ``device``; it must outlive its users."""

    def __init__(self, array: np.ndarray, device: int = CUDA) -> None:
        self.array = array
        self.device = device
        self._shape = (ctypes.c_int64 * array.ndim)(*array.shape)
        tensor = _DLTensor(array.ctypes.data, (device, 0), array.ndim, (2, 32, 1, 0), self._shape)
        self._managed = _Managed(tensor)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0

    def __dlpack__(self, **_: object) -> object:
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = (
            ctypes.py_object,
            (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p),
        )
        return capsule(ctypes.addressof(self._managed), b"dltensor", None)
