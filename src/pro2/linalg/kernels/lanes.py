"""A number type of WIDTH float64 lanes for numba: each lane is one problem, each operation one vector instruction.

Numba alone vectorises along an array axis, which the short, dependent loops of a 16 x 16 factorisation do not have.
Across problems every loop is of this kind. Nothing is reassociated: only products and sums fuse.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba import njit, types
from numba.core.datamodel.models import PrimitiveModel
from numba.extending import intrinsic as _intrinsic
from numba.extending import overload, register_model

intrinsic: Any = _intrinsic  # its type is that of the Python function, which is not what a caller sees

WIDTH = 4  # one AVX2 register, two of NEON

_VECTOR = ir.VectorType(ir.DoubleType(), WIDTH)
_BITS = ir.VectorType(ir.IntType(64), WIDTH)
_FUSED = ("contract",)


class _LanesType(types.Type):
    def __init__(self) -> None:
        super().__init__(name=f"Lanes({WIDTH})")


LANES = _LanesType()


@register_model(_LanesType)
class _LanesModel(PrimitiveModel):
    def __init__(self, dmm: Any, fe_type: Any):
        super().__init__(dmm, fe_type, _VECTOR)


def _address(context: Any, builder: Any, array_type: Any, array: Any, index: Any) -> Any:
    """Where lane group `index` of a contiguous float64 array begins, whatever its shape."""
    data = context.make_array(array_type)(context, builder, array).data
    first = builder.gep(data, [builder.mul(index, ir.Constant(index.type, WIDTH))])
    return builder.bitcast(first, _VECTOR.as_pointer())


@intrinsic
def load(typingctx: Any, a: Any, i: Any) -> Any:
    """Lane group i of a contiguous float64 array (..., WIDTH), counted over all leading axes: no view is made."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return builder.load(_address(context, builder, signature.args[0], *args), align=8)

    return LANES(a, types.intp), code


@intrinsic
def store(typingctx: Any, a: Any, i: Any, v: Any) -> Any:
    """Inverse of `load`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        builder.store(args[2], _address(context, builder, signature.args[0], *args[:2]), align=8)
        return context.get_dummy_value()

    return types.void(a, types.intp, LANES), code


@intrinsic
def spread(typingctx: Any, x: Any) -> Any:
    """The same number in all lanes."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        one = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), args[0], ir.Constant(ir.IntType(32), 0))
        return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH))

    return LANES(types.float64), code


@intrinsic
def choose(typingctx: Any, x: Any, a: Any, b: Any) -> Any:
    """a where x >= 0, else b."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        above = builder.fcmp_ordered(">=", args[0], ir.Constant(_VECTOR, [0.0] * WIDTH))
        return builder.select(above, args[1], args[2])

    return LANES(LANES, LANES, LANES), code


@intrinsic
def _raise_exponent(typingctx: Any, x: Any, shift: Any) -> Any:
    """x 2^k with k in the low bits of `shift`."""

    def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        x, shift = (builder.bitcast(a, _BITS) for a in args)
        return builder.bitcast(builder.add(x, builder.shl(shift, ir.Constant(_BITS, [52] * WIDTH))), _VECTOR)

    return LANES(LANES, LANES), code


def _binary(emit: Callable[..., Any]) -> Any:
    @intrinsic
    def apply(typingctx: Any, a: Any, b: Any) -> Any:
        return LANES(LANES, LANES), lambda context, builder, signature, args: emit(builder, args)

    return apply


def _arithmetic(op: Callable[..., Any], instruction: str) -> None:
    apply = _binary(lambda builder, args: getattr(builder, instruction)(*args, flags=_FUSED))
    overload(op)(lambda a, b: (lambda a, b: apply(a, b)) if a == LANES and b == LANES else None)


_arithmetic(operator.add, "fadd")
_arithmetic(operator.sub, "fsub")
_arithmetic(operator.mul, "fmul")
_arithmetic(operator.truediv, "fdiv")


# of two lanes of which one is no number, the second
largest = _binary(lambda builder, args: builder.select(builder.fcmp_ordered(">", *args), *args))
smallest = _binary(lambda builder, args: builder.select(builder.fcmp_ordered("<", *args), *args))


def _polynomial(coefficients: Sequence[float]) -> Any:
    """x -> sum of coefficients (highest first) times powers of x, as one chain: numba would keep the loop."""

    @intrinsic
    def apply(typingctx: Any, x: Any) -> Any:
        def code(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            a, *rest = (ir.Constant(_VECTOR, [c] * WIDTH) for c in coefficients)
            for b in rest:
                a = builder.fadd(builder.fmul(a, args[0], flags=_FUSED), b, flags=_FUSED)
            return a

        return LANES(LANES), code

    return apply


_LOG2E, _LN2_HIGH, _LN2_LOW = 1.4426950408889634, 0.693145751953125, 1.4286068203094172567e-6
_ROUND = 1.5 * 2.0**52  # adding it rounds to an integer and leaves that in the low bits
_exp_series = _polynomial([1.0 / math.factorial(k) for k in range(12, -1, -1)])
_atanh_series = _polynomial([1.0 / (2 * k + 1) for k in range(15, -1, -1)])  # of atanh(s) / s in s^2


@njit(nogil=True, cache=True)
def absolute(x: Any) -> Any:
    """Without the sign."""
    return largest(x, spread(0.0) - x)


@njit(nogil=True, cache=True)
def exponential(x: Any) -> Any:
    """exp(x) for x <= 0 to 2 units in the last place; about 1e-307 below -707."""
    x = largest(x, spread(-707.0))
    shift = x * spread(_LOG2E) + spread(_ROUND)
    k = shift - spread(_ROUND)
    return _raise_exponent(_exp_series(x - k * spread(_LN2_HIGH) - k * spread(_LN2_LOW)), shift)


@njit(nogil=True, cache=True)
def logistic(f: Any) -> Any:
    """Probability 1 / (1 + exp(-f)) and log(1 + exp(f)): one exponential and one division for both."""
    p, rest = probability(f)
    return p, largest(f, spread(0.0)) + rest


@njit(nogil=True, cache=True)
def probability(f: Any) -> Any:
    """1 / (1 + exp(-f)) and log(1 + exp(-|f|)), to which max(f, 0) has not been added."""
    one, two = spread(1.0), spread(2.0)
    e = exponential(smallest(f, spread(0.0) - f))
    inverse = one / ((one + e) * (two + e))
    high = (two + e) * inverse
    s = e * (one + e) * inverse  # log(1 + e) = 2 atanh(e / (2 + e)), exact for the smallest e too
    return choose(f, high, e * high), two * s * _atanh_series(s * s)
