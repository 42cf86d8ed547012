"""Read data out of a pickle without running it: containers, numbers, text and NumPy arrays, nothing else.

CIFAR-10 is published as Python 2 pickles. Loading a pickle runs whatever it names; here the opcodes are only read, by a
small stack machine that knows four harmless names and refuses every other.
"""

from __future__ import annotations

import math
import pickletools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

_RECONSTRUCT = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_NAMES = _RECONSTRUCT | {"numpy ndarray", "numpy dtype", "_codecs encode"}
_PUSH = {"BININT", "BININT1", "BININT2", "INT", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"}
_TEXT = {"UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"}
_BYTES = {"BINBYTES", "SHORT_BINBYTES", "BINBYTES8"}
_OLD_TEXT = {"STRING", "BINSTRING", "SHORT_BINSTRING"}
_PUT, _GET = {"PUT", "BINPUT", "LONG_BINPUT"}, {"GET", "BINGET", "LONG_BINGET"}
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_FRESH: dict[str, Callable[[], Any]] = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_FIXED_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_DEEPEST = 50


class _Name(str):
    """A name the pickle would import; here it is only text."""


class _Mark:
    pass


class _Array:
    value: np.ndarray | None = None


class _Type:
    def __init__(self, code: str) -> None:
        self.code, self.order = code, "|"

    def dtype(self) -> np.dtype:
        if self.code[:1] not in "biuf" or not self.code[1:].isdigit():
            raise ValueError(f"array type {self.code!r} is not a number type")
        return np.dtype(("" if self.order == "|" else self.order) + self.code)


def read_plain_pickle(path: Path) -> Any:
    """The data of a pickle file; ValueError if it holds more than plain data.

    Python 2 text arrives as bytes, arrays as NumPy arrays.
    """
    machine = _Machine()
    try:
        with Path(path).open("rb") as file:
            for opcode, arg, _ in pickletools.genops(file):
                machine.step(opcode.name, arg)
        return _resolved(machine.stack.pop(), {}, 0)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ValueError(f"{path} is not a pickle of plain data ({error}); download it again") from error


class _Machine:
    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def step(self, name: str, arg: Any) -> None:
        if name in _PUSH or name in _TEXT or name in _BYTES:
            self.stack.append(arg)
        elif name in _OLD_TEXT:
            self.stack.append(arg.encode("latin-1") if isinstance(arg, str) else arg)
        elif name in _CONSTANTS:
            self.stack.append(_CONSTANTS[name])
        elif name in _FRESH:
            self.stack.append(_FRESH[name]())
        elif name in _PUT or name == "MEMOIZE":
            self.memo[len(self.memo) if name == "MEMOIZE" else int(arg)] = self.stack[-1]
        elif name in _GET:
            self.stack.append(self.memo[int(arg)])
        elif name not in ("PROTO", "FRAME", "STOP"):
            self._structure(name, arg)

    def _structure(self, name: str, arg: Any) -> None:
        if name == "MARK":
            self.stack.append(_Mark())
        elif name in ("APPENDS", "SETITEMS", "TUPLE", "LIST", "DICT"):
            self._collect(name, self._to_mark())
        elif name in ("APPEND", "SETITEM"):
            self._collect(f"{name}S", self._pop(1 if name == "APPEND" else 2))
        elif name in _FIXED_TUPLES:
            self.stack.append(tuple(self._pop(_FIXED_TUPLES[name])))
        elif name in ("GLOBAL", "STACK_GLOBAL"):
            self.stack.append(_allowed(arg if name == "GLOBAL" else " ".join(self._pop(2))))
        elif name == "REDUCE":
            function, args = self._pop(2)
            self.stack.append(_reduced(function, args))
        elif name == "BUILD":
            thing, state = self._pop(2)
            self.stack.append(_built(thing, state))
        else:
            raise ValueError(f"opcode {name} is not allowed")

    def _collect(self, name: str, items: list[Any]) -> None:
        if name == "TUPLE":
            self.stack.append(tuple(items))
        elif name == "LIST":
            self.stack.append(items)
        elif name == "DICT":
            self.stack.append(dict(zip(items[::2], items[1::2])))
        elif name == "APPENDS" and isinstance(self.stack[-1], list):
            self.stack[-1].extend(items)
        elif name == "SETITEMS" and isinstance(self.stack[-1], dict):
            self.stack[-1].update(zip(items[::2], items[1::2]))
        else:
            raise ValueError(f"{name} on a {type(self.stack[-1]).__name__}")

    def _pop(self, n: int) -> list[Any]:
        if len(self.stack) < n:
            raise ValueError("the stack is empty")
        items, self.stack[-n:] = self.stack[-n:], []
        return items

    def _to_mark(self) -> list[Any]:
        at = max(i for i, item in enumerate(self.stack) if isinstance(item, _Mark))
        items, self.stack[at:] = self.stack[at + 1 :], []
        return items


def _allowed(name: str) -> _Name:
    if name not in _NAMES:
        raise ValueError(f"it names {name!r}, which could run code")
    return _Name(name)


def _reduced(function: Any, args: Any) -> Any:
    if not isinstance(function, _Name) or not isinstance(args, tuple) or not args:
        raise ValueError("a call to something that is not a known name")
    if function in _RECONSTRUCT and args[0] == "numpy ndarray":
        return _Array()
    if function == "numpy dtype":
        return _Type(_ascii(args[0]))
    if function == "_codecs encode" and isinstance(args[0], str):
        return args[0].encode("latin-1")
    raise ValueError(f"a call to {function} with unexpected arguments")


def _built(thing: Any, state: Any) -> Any:
    if isinstance(thing, _Type):
        thing.order = _ascii(state[1])
        if thing.order not in ("<", ">", "|", "="):
            raise ValueError(f"byte order {thing.order!r}")
    elif isinstance(thing, _Array):
        _, shape, kind, fortran, data = state
        dtype = kind.dtype() if isinstance(kind, _Type) else None
        if dtype is None or not isinstance(data, bytes) or len(data) != math.prod(shape) * dtype.itemsize:
            raise ValueError("an array whose size does not fit its shape")
        thing.value = np.frombuffer(data, dtype=dtype).reshape(shape, order="F" if fortran else "C")
    else:
        raise ValueError(f"a state for a {type(thing).__name__}")
    return thing


def _ascii(value: Any) -> str:
    return value.decode("ascii") if isinstance(value, bytes) else str(value)


def _resolved(value: Any, seen: dict[int, Any], depth: int) -> Any:
    """Arrays in place of their stand-ins; shared parts are visited once."""
    if id(value) in seen:
        return seen[id(value)]
    if (
        depth > _DEEPEST
        or isinstance(value, (_Name, _Mark, _Type))
        or (isinstance(value, _Array) and value.value is None)
    ):
        raise ValueError("unfinished or too deeply nested data")
    result = value
    if isinstance(value, _Array):
        result = value.value
    elif isinstance(value, dict):
        result = {key: _resolved(item, seen, depth + 1) for key, item in value.items()}
    elif isinstance(value, (list, tuple)):
        result = type(value)(_resolved(item, seen, depth + 1) for item in value)
    seen[id(value)] = result
    return result
