"""Row filters as text: ``split == 0 and y != place``. Parsed into comparisons, never evaluated as Python.

Columns and values are taken out first, so that Python's parser sees numbered placeholders, operators and brackets only;
of its tree a few kinds of node are accepted, and everything else is an error. Limits: a million characters, a hundred
nested parts, forty characters in a number.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import operator
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np

from pro2.tables.columns import filled
from pro2.tables.errors import TableError

Columns = Callable[[str], np.ndarray]
Mask = Callable[[Columns], np.ndarray]

_LONGEST, _DEEPEST, _DIGITS = 10**6, 100, 40
_TOKEN = re.compile(
    r"""(?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,4})?(?![\w.]))
        |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
        |(?P<quoted>`[^`]+`)
        |(?P<mark>==|!=|<=|>=|<|>|[()\[\],])
        |(?P<word>[^\W\d]\w*(?:\.\w+)*)
        |(?P<space>\s+)""",
    re.VERBOSE | re.DOTALL,
)
_KEPT = ("and", "or", "not", "in")
# What other languages write: the word for it here.
_MEANT = {
    "=": "==", "&": "and", "&&": "and", "|": "or", "||": "or", "!": "not", "is": "== None or != None",
    "AND": "and", "OR": "or", "NOT": "not", "IN": "in", "NULL": "None", "null": "None", "true": "True",
    "false": "False",
}  # fmt: skip
_CONSTANTS = {"True": True, "False": False, "None": None}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


class _Side(NamedTuple):
    """A column by name, or a value."""

    name: str | None
    value: Any = None

    def __str__(self) -> str:
        return repr(self.value) if self.name is None else f"column {self.name!r}"

    @property
    def is_none(self) -> bool:
        return self.name is None and self.value is None


def parse(expression: str, names: Sequence[str]) -> Mask:
    """Turn a filter into a function from columns to a row mask.

    Parameters
    ----------
    expression : str
        Comparisons (``==  !=  <  <=  >  >=``) and ``in [..]`` over columns, joined by ``and``, ``or``, ``not`` and
        parentheses; two values or more may also stand in parentheses after ``in``. Text values need quotes; a column
        name that is not a plain word goes in backticks. ``None`` stands for a missing value.
    names : sequence of str
        The columns that may appear.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise TableError(f'where expects a filter such as "split == 0 and y != place", found {expression!r}')
    if len(expression) > _LONGEST:
        raise TableError(f"where: a filter of {len(expression):,} characters; the limit is {_LONGEST:,}")
    return _Filter(expression.strip(), names).mask


def close_names(name: str, names: Sequence[str]) -> str:
    """`did you mean ...?` followed by what there is."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(map(repr, near))}? " if near else ""
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{hint}columns are: {listed or 'none'}"


def _parse(source: str) -> ast.Expression:
    """Python's parser, asked again where another thread disturbed it.

    Up to 3.11.7 it counts the depth of all threads in one place (github.com/python/cpython/issues/106905).
    """
    for _ in range(9):
        with contextlib.suppress(SystemError):
            return ast.parse(source, mode="eval")
    return ast.parse(source, mode="eval")


class _Filter:
    """A filter on its way from text to a mask."""

    def __init__(self, expression: str, names: Sequence[str]) -> None:
        self.expression, self.names, self.known = expression, names, set(names)
        self.sides: list[_Side] = []
        tokens = list(self._tokens())
        try:
            tree = _parse("".join(piece for piece, _ in tokens).rstrip())
        except SyntaxError as error:
            raise self._misread(tokens, error.offset or 0) from None
        self.mask = self._mask(tree.body)

    def _wrong(self, found: str, expected: str) -> TableError:
        shown = self.expression if len(self.expression) <= 200 else f"{self.expression[:200]}..."
        return TableError(f"where: {found} in {shown!r}; expected {expected}")

    def _tokens(self) -> Iterator[tuple[str, int]]:
        """Pieces of Python with `s0`, `s1`, ... for columns and values, each with its place in the filter."""
        at = brackets = nots = 0
        while at < len(self.expression):
            match = _TOKEN.match(self.expression, at)
            if match is None:
                mark = re.match(r"[=&|!]*", self.expression[at:])
                expected = self._meant(mark.group() if mark else "") or "columns, numbers and quoted text"
                raise self._wrong(f"cannot read {self.expression[at : at + 10]!r}", expected)
            text, kind = match.group(), str(match.lastgroup)
            if kind in ("mark", "space") or text in _KEPT:
                yield (" " if kind == "space" else f"{text} "), at
            else:
                self.sides.append(self._column_or_value(kind, text))
                yield f"s{len(self.sides) - 1} ", at
            # What cannot nest deeply cannot exhaust a stack: brackets, and one "not" after the other.
            brackets += (text in "([") - (text in ")]") if kind == "mark" else 0
            nots = nots + 1 if text == "not" else nots if kind == "space" else 0
            if brackets + nots > _DEEPEST:
                raise self._wrong(f"more than {_DEEPEST} nested parts", "a simpler filter")
            at = match.end()

    def _column_or_value(self, kind: str, text: str) -> _Side:
        if kind == "number":
            if len(text) > _DIGITS:
                raise self._wrong(f"a number of {len(text):,} characters", f"at most {_DIGITS}; quote it if it is text")
            return _Side(None, float(text) if re.search(r"[.eE]", text) else int(text))
        if kind == "text":
            return _Side(None, re.sub(r"\\(.)", r"\1", text[1:-1], flags=re.DOTALL))
        name = text.strip("`") if kind == "quoted" else text
        if name in self.known:
            return _Side(name)
        if kind == "word" and name in _CONSTANTS:
            return _Side(None, _CONSTANTS[name])
        if kind == "word" and (meant := self._meant(name)):
            raise self._wrong(f"cannot read {name!r}", meant)
        hint = close_names(name, self.names)
        raise TableError(f"where: no column {name!r}; {hint}. A text value needs quotes: '{name}'")

    def _meant(self, text: str) -> str | None:
        return f"{_MEANT[text]} instead" if text in _MEANT else None

    def _misread(self, tokens: list[tuple[str, int]], offset: int) -> TableError:
        """What Python's parser stumbled over, in the words of the filter; it counts characters from 1, 0 is the end."""
        pieces = [piece.strip() for piece, _ in tokens]
        for opening, closing in ("()", "[]"):
            if pieces.count(opening) > pieces.count(closing):
                return self._wrong(f"found {opening!r} without its end", repr(closing))
        ends = list(accumulate(len(piece) for piece, _ in tokens))
        number = bisect_left(ends, offset) if offset else len(ends)
        if number == len(ends):
            return self._wrong("the filter ends", "a column or a value")
        at = tokens[number][1]
        found = self.expression[at:].split()[0][:40]
        if self.expression[at - 1 : at + 1] == "<>":
            return self._wrong("cannot read '<>'", "!= instead")
        return self._wrong(f"cannot read {found!r} at character {at + 1}", "a comparison, 'and', 'or' or the end")

    def _mask(self, node: ast.expr) -> Mask:
        match node:
            case ast.BoolOp(op=op, values=values):
                masks = [self._mask(each) for each in values]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda columns: join.reduce([mask(columns) for mask in masks])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._mask(operand)
                return lambda columns: ~inner(columns)
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                return self._comparison(self._side(left), op, right)
            case ast.Compare():
                raise self._wrong("a chain of comparisons", "two comparisons joined by 'and'")
            case _:
                return self._bare(self._side(node))

    def _side(self, node: ast.expr) -> _Side:
        if not isinstance(node, ast.Name):
            raise self._wrong(f"cannot read a {type(node).__name__.lower()}", "a column or a value")
        return self.sides[int(node.id[1:])]

    def _comparison(self, left: _Side, op: ast.cmpop, right: ast.expr) -> Mask:
        if isinstance(op, ast.In | ast.NotIn):
            inside = self._membership(left, right)
            return inside if isinstance(op, ast.In) else lambda columns: ~inside(columns)
        compare, other = _COMPARE[type(op)], self._side(right)
        if left.name is None and other.name is None:
            raise self._wrong(f"{left} and {other} are two values", "a column on one side")
        return lambda columns: _compare(compare, left, other, columns)

    def _bare(self, side: _Side) -> Mask:
        if side.name is None:
            raise self._wrong(f"{side} alone is no condition", "a comparison such as y == 1")

        def mask(columns: Columns) -> np.ndarray:
            values, missing = _filled(side, columns)
            if values.dtype.kind != "b":
                raise TableError(f"where: {side} alone is no condition (dtype {values.dtype}); compare it")
            return values & ~missing

        return mask

    def _membership(self, left: _Side, right: ast.expr) -> Mask:
        if left.name is None:
            raise self._wrong(f"{left} before 'in'", "a column before 'in'")
        if not isinstance(right, ast.List | ast.Tuple) or not right.elts:
            raise self._wrong("'in' without values", "a list such as [0, 1] after it")
        options = [self._side(each) for each in right.elts]
        column = next((each for each in options if each.name is not None), None)
        if column is not None:
            raise self._wrong(f"{column} inside [..]", "numbers or quoted text")

        def mask(columns: Columns) -> np.ndarray:
            values, missing = _filled(left, columns)
            for option in options:
                if not option.is_none:
                    _check_kinds(left, values, option, option.value)
            wanted = {option.value for option in options}  # one look-up per row, however many values there are
            found = np.fromiter((item in wanted for item in values.tolist()), bool, len(values))
            return np.where(missing, None in wanted, found)

        return mask


def _filled(side: _Side, columns: Columns) -> tuple[Any, np.ndarray]:
    """A column without gaps, and where they were; a value as it is."""
    if side.name is None:
        return side.value, np.asarray(False)  # no array: NumPy then compares an int8 column with 300 without overflow
    values = np.asarray(columns(side.name))
    if values.ndim > 1:
        raise TableError(f"where: {side} holds {values.shape[1]} numbers per row and cannot be compared")
    full, missing = filled(values)
    if missing is None:
        missing = np.isnan(full) if full.dtype.kind == "f" else np.zeros(len(full), dtype=bool)
    return full, missing


def _check_kinds(left: _Side, a: Any, right: _Side, b: Any) -> None:
    """Text is compared with text, numbers with numbers; `a` and `b` are a column or a value each."""
    texts = [
        values.dtype.kind in "UO" if side.name else isinstance(values, str) for side, values in ((left, a), (right, b))
    ]
    if texts[0] != texts[1]:
        text, number = (left, right) if texts[0] else (right, left)
        raise TableError(
            f"where: {text} is text and {number} is not; "
            "quote the value to compare it with text, unquote it to compare it with numbers"
        )


def _compare(compare: Callable[[Any, Any], Any], left: _Side, right: _Side, columns: Columns) -> np.ndarray:
    """A missing value differs from every value, and is neither more nor less than any."""
    if left.is_none or right.is_none:
        _, missing = _filled(right if left.is_none else left, columns)
        if compare not in (operator.eq, operator.ne):
            raise TableError("where: None is neither more nor less than anything; use == None or != None")
        return missing if compare is operator.eq else ~missing
    (a, no_a), (b, no_b) = _filled(left, columns), _filled(right, columns)
    _check_kinds(left, a, right, b)
    with np.errstate(over="ignore"):  # 1e300 against a float16 column is infinity, as it should be
        found = np.asarray(compare(a, b), dtype=bool)
    return np.where(no_a | no_b, compare is operator.ne, found)
