"""Row filters as text: ``split == 0 and y != place``. Parsed by Python's own parser, checked, and never run as Python.

Of the syntax tree only comparisons, `and`, `or`, `not`, column names, constants and lists of constants are accepted.
"""

import ast
import contextlib
import difflib
import keyword
import operator
import re
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pro2.tables import TableError
from pro2.tables.columns import filled

Columns = Callable[[str], np.ndarray]
Mask = Callable[[Columns], np.ndarray]

_LONGEST, _DEEPEST, _LARGEST = 10**6, 100, 10**40
_TOKEN = re.compile(r"""('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|`([^`]+)`|(?<![\w.])([^\W\d]\w*)""", re.DOTALL)
_WORDS = {"and", "or", "not", "in", "True", "False", "None"}
_COMPARE: dict[type, Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}  # fmt: skip


def close_names(name: str, names: Sequence[str]) -> str:
    """`did you mean ...?` followed by what there is."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(map(repr, near))}? " if near else ""
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{hint}columns are: {listed or 'none'}"


def parse(expression: str, names: Sequence[str]) -> Mask:
    """Turn a filter, as `EmbeddingTable.where` takes it, over the columns `names` into a function to a row mask."""
    if not isinstance(expression, str) or not expression.strip():
        raise TableError(f'where expects a filter such as "split == 0 and y != place", found {expression!r}')
    if len(expression) > _LONGEST:
        raise TableError(f"where: a filter of {len(expression):,} characters; the limit is {_LONGEST:,}")
    return _Filter(expression, names).mask


class _Operand(NamedTuple):
    """A column by name, or a value."""

    name: str | None
    value: Any = None

    def __str__(self) -> str:
        return repr(self.value) if self.name is None else f"column {self.name!r}"

    def read(self, columns: Columns) -> tuple[Any, np.ndarray]:
        """A column without missing values, and where they were; a value as it is."""
        if self.name is None:
            return self.value, np.asarray(False)  # no array: NumPy then compares an int8 column with 300
        values = np.asarray(columns(self.name))
        if values.ndim > 1:
            raise TableError(f"where: {self} holds {values.shape[1]} numbers per row and cannot be compared")
        full, missing = filled(values)
        if missing is None:
            missing = np.isnan(full) if full.dtype.kind == "f" else np.zeros(len(full), dtype=bool)
        return full, missing


class _Filter:
    """A filter on its way from text to a mask."""

    def __init__(self, expression: str, names: Sequence[str]) -> None:
        self.expression, self.names, self.quoted = expression, names, dict[str, str]()
        text = _TOKEN.sub(self._replace_name, expression)
        for _ in range(9):
            try:
                with warnings.catch_warnings(action="ignore"):  # of unknown escapes in texts
                    self.mask = self._mask(ast.parse(f"({text}\n)", mode="eval").body, 0)
                break
            except SystemError:  # up to 3.11.7 the parser counts the depth of all threads together (cpython 106905)
                continue
            except TableError:
                raise
            except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
                raise self._wrong(f"cannot read this filter ({getattr(error, 'msg', 'too deeply nested')})") from None

    def _replace_name(self, match: re.Match[str]) -> str:
        """A placeholder for names in backticks, and for columns whose name is a word of Python, such as class."""
        text, name, word = match.groups()
        if text or (word and (word in _WORDS or word not in self.names or not keyword.iskeyword(word))):
            return match.group()
        self.quoted[f"_{len(self.quoted)}_"] = name or word
        return f" _{len(self.quoted) - 1}_ "

    def _text(self, node: ast.expr) -> str:
        return re.sub(r"\b_\d+_\b", lambda match: self.quoted.get(match[0], match[0]), ast.unparse(node))

    def _wrong(self, problem: str, expected: str = "comparisons such as y == 1, joined by and, or, not") -> TableError:
        shown = self.expression if len(self.expression) <= 200 else f"{self.expression[:200]}..."
        return TableError(f"where: {problem} in {shown!r}; expected {expected}")

    def _mask(self, node: ast.expr, depth: int) -> Mask:
        if depth > _DEEPEST:
            raise self._wrong(f"more than {_DEEPEST} nested parts", "a simpler filter")
        match node:
            case ast.BoolOp(op=op, values=values):
                masks = [self._mask(value, depth + 1) for value in values]
                join = np.logical_and if isinstance(op, ast.And) else np.logical_or
                return lambda columns: join.reduce([mask(columns) for mask in masks])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self._mask(operand, depth + 1)
                return lambda columns: ~inner(columns)
            case ast.Compare(left=left, ops=[ast.In() | ast.NotIn() as op], comparators=[right]):
                found = self._membership(self._operand(left), right)
                return found if isinstance(op, ast.In) else lambda columns: ~found(columns)
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _COMPARE:
                a, b = self._operand(left), self._operand(right)
                if a.name is None and b.name is None:
                    raise self._wrong(f"{a} and {b} are two values", "a column on one side")
                return lambda columns: _compare(_COMPARE[type(op)], a, b, columns)
            case ast.Compare(ops=ops) if len(ops) > 1:
                raise self._wrong("a chain of comparisons", "two comparisons joined by 'and'")
            case ast.Name() | ast.Attribute() | ast.Constant():
                return partial(_truth, self._operand(node))
        raise self._wrong(f"cannot read {self._text(node)[:40]!r}")

    def _operand(self, node: ast.expr) -> _Operand:
        if isinstance(node, ast.Name | ast.Attribute):
            name = self._text(node)
            if name not in self.names:
                hint = close_names(name, self.names)
                raise TableError(f"where: no column {name!r}; {hint}. A text value needs quotes: '{name}'")
            return _Operand(name)
        value: Any = ()
        with contextlib.suppress(ValueError):  # of anything but a constant, or a number with a sign
            value = ast.literal_eval(node)
        if not isinstance(value, bool | int | float | str | None):
            raise self._wrong(f"cannot read {self._text(node)[:40]!r}", "a column or a value")
        if isinstance(value, int) and abs(value) > _LARGEST:
            raise self._wrong("a number of more than 40 digits", "a smaller one; quote it if it is text")
        return _Operand(None, value)

    def _membership(self, column: _Operand, right: ast.expr) -> Mask:
        if column.name is None:
            raise self._wrong(f"{column} before 'in'", "a column before 'in'")
        if not isinstance(right, ast.List | ast.Tuple) or not right.elts:
            raise self._wrong("'in' without values", "a list such as [0, 1] after it")
        options = [self._operand(option) for option in right.elts]
        if any(option.name is not None for option in options):
            raise self._wrong("a column inside [..]", "numbers or quoted text")
        wanted = {option.value for option in options}  # one look-up per row, however many values there are

        def mask(columns: Columns) -> np.ndarray:
            values, missing = column.read(columns)
            for option in options:
                _check_kinds(column, values, option, option.value)
            found = np.fromiter((item in wanted for item in values.tolist()), bool, len(values))
            return np.where(missing, None in wanted, found)

        return mask


def _truth(operand: _Operand, columns: Columns) -> np.ndarray:
    values, missing = operand.read(columns)
    if operand.name is None or values.dtype.kind != "b":
        raise TableError(f"where: {operand} alone is not a condition; expected a comparison such as y == 1")
    return values & ~missing


def _check_kinds(a: _Operand, left: Any, b: _Operand, right: Any) -> None:
    """Text is compared with text, numbers with numbers; None with both."""
    is_text = [isinstance(v, str) or getattr(v, "dtype", np.dtype(int)).kind in "UO" for v in (left, right)]
    if is_text[0] != is_text[1] and left is not None and right is not None:
        text, number = (a, b) if is_text[0] else (b, a)
        raise TableError(
            f"where: {text} is text and {number} is not; "
            "quote the value to compare it with text, unquote it to compare it with numbers"
        )


def _compare(compare: Callable[[Any, Any], Any], a: _Operand, b: _Operand, columns: Columns) -> np.ndarray:
    """A missing value differs from every value, and is neither more nor less than any."""
    (left, no_left), (right, no_right) = a.read(columns), b.read(columns)
    if left is None or right is None:
        if compare not in (operator.eq, operator.ne):
            raise TableError("where: None is neither more nor less than anything; use == None or != None")
        missing = no_left | no_right  # that of the column: a value is never missing
        return missing if compare is operator.eq else ~missing
    _check_kinds(a, left, b, right)
    with np.errstate(over="ignore"):  # 1e300 against a float16 column is infinity, as it should be
        found = np.asarray(compare(left, right), dtype=bool)
    return np.where(no_left | no_right, compare is operator.ne, found)
