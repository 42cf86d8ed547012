"""Routines of SciPy's BLAS and LAPACK that let other threads run.

The wrappers in `scipy.linalg.blas` and `scipy.linalg.lapack` hold Python's lock while they compute; so a long one stops
every other thread that needs it. SciPy gives the addresses of the same routines to compiled code
(`scipy.linalg.cython_blas`); called from here, they compute without the lock.
"""

from __future__ import annotations

import ctypes
import importlib
from functools import cache
from typing import Any

import numpy as np


def call(name: str, *args: Any) -> int:
    """Run a routine with Fortran's arguments; arrays are taken as they lie in memory, column-major.

    The last argument of a LAPACK routine, INFO, is added here and returned; 0 for BLAS.
    """
    info = ctypes.c_int(0)
    routine, has_info = _routine(name)
    routine(*map(_reference, (*args, info) if has_info else args))
    return info.value


def workspace(name: str, *args: Any, after: tuple[Any, ...] = ()) -> np.ndarray:
    """The array WORK that a LAPACK routine asks for when it is called with these arguments before and after it."""
    asked = np.empty(1)
    call(name, *args, asked, -1, *after)
    return np.empty(int(asked[0]))


def _reference(arg: Any) -> Any:
    if isinstance(arg, np.ndarray):
        return ctypes.c_void_p(arg.ctypes.data)
    if isinstance(arg, str):
        return ctypes.c_char_p(arg.encode())
    if isinstance(arg, int):
        return ctypes.byref(ctypes.c_int(arg))
    if isinstance(arg, np.float32):
        return ctypes.byref(ctypes.c_float(float(arg)))
    return ctypes.byref(ctypes.c_double(arg) if isinstance(arg, float) else arg)


@cache
def _routine(name: str) -> tuple[Any, bool]:
    """The routine, and whether it is one of LAPACK."""
    addresses = importlib.import_module("scipy.linalg.cython_blas").__pyx_capi__
    is_lapack = name not in addresses
    if is_lapack:
        addresses = importlib.import_module("scipy.linalg.cython_lapack").__pyx_capi__
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get_pointer(addresses[name], get_name(addresses[name]))
    return ctypes.CFUNCTYPE(None)(address), is_lapack
