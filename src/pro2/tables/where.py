"""Row filters as text: ``split == 0 and y != place``. Parsed into comparisons, never evaluated as Python.

Grammar::

    any     = all ("or" all)*
    all     = term ("and" term)*
    term    = "not" term | "(" any ")" | side (op side | ["not"] "in" "[" value ("," value)* "]")?
    side    = column | `column with spaces` | number | 'text' | True | False
"""

from __future__ import annotations

import difflib
import operator
import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

Columns = Callable[[str], np.ndarray]
Mask = Callable[[Columns], np.ndarray]

_TOKEN = re.compile(
    r"""\s*(?:(?P<number>[+-]?(?:\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)(?![\w.]))
        |(?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
        |(?P<quoted>`[^`]+`)
        |(?P<op>==|!=|<=|>=|<|>)
        |(?P<mark>[()\[\],])
        |(?P<word>[^\W]\w*(?:\.\w+)*))""",
    re.VERBOSE,
)
_COMPARE = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_DEEPEST = 100  # nesting beyond any honest filter; keeps a hostile text from exhausting the stack


class Token(NamedTuple):
    kind: str
    text: str
    at: int


class _Side(NamedTuple):
    name: str | None
    value: Any

    def get(self, columns: Columns) -> Any:
        return self.value if self.name is None else columns(self.name)

    def label(self) -> str:
        return repr(self.value) if self.name is None else f"column {self.name!r}"


def parse(expression: str, names: Sequence[str]) -> Mask:
    """Turn a filter into a function from columns to a row mask.

    Parameters
    ----------
    expression : str
        Comparisons (``==  !=  <  <=  >  >=``) and ``in [..]`` over columns, joined by ``and``, ``or``, ``not`` and
        parentheses. Text values need quotes; a column name that is not a plain word goes in backticks.
    names : sequence of str
        The columns that may appear.
    """
    if not isinstance(expression, str) or not expression.strip():
        raise ValueError(f'where expects a filter such as "split == 0 and y != place", found {expression!r}')
    parser = _Parser(expression, list(names))
    mask = parser.any_of()
    if parser.next is not None:
        raise parser.error(f"cannot read {parser.next.text!r}", "'and', 'or' or the end")
    return mask


def close_names(name: str, names: Sequence[str]) -> str:
    """`; did you mean ...?` followed by what there is."""
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.6)
    hint = f"did you mean {', '.join(map(repr, near))}? " if near else ""
    listed = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
    return f"{hint}columns are: {listed or 'none'}"


class _Parser:
    def __init__(self, expression: str, names: list[str]) -> None:
        self.expression, self.names, self.depth = expression, names, 0
        self.tokens, self.position = list(_tokens(expression)), 0

    @property
    def next(self) -> Token | None:
        return self.tokens[self.position] if self.position < len(self.tokens) else None

    def error(self, found: str, expected: str) -> ValueError:
        at = self.next.at if self.next else len(self.expression)
        return ValueError(f"where: {found} at character {at + 1} of {self.expression!r}; expected {expected}")

    def accept(self, *texts: str) -> str | None:
        token = self.next
        if token is None or token.kind in ("text", "quoted") or token.text not in texts:
            return None
        self.position += 1
        return token.text

    def expect(self, text: str) -> None:
        if self.accept(text) is None:
            raise self.error(f"found {self.next.text!r}" if self.next else "the filter ends", repr(text))

    def any_of(self) -> Mask:
        return self._joined(self.all_of, "or", np.logical_or)

    def all_of(self) -> Mask:
        return self._joined(self.term, "and", np.logical_and)

    def _joined(self, part: Callable[[], Mask], word: str, join: Callable[..., np.ndarray]) -> Mask:
        masks = [part()]
        while self.accept(word):
            masks.append(part())
        return masks[0] if len(masks) == 1 else lambda columns: join.reduce([mask(columns) for mask in masks])  # type: ignore[attr-defined]

    def term(self) -> Mask:
        self.depth += 1
        if self.depth > _DEEPEST:
            raise self.error(f"more than {_DEEPEST} nested parts", "a simpler filter")
        mask = self._negated() or self._grouped() or self._comparison()
        self.depth -= 1
        return mask

    def _negated(self) -> Mask | None:
        if not self.accept("not"):
            return None
        mask = self.term()
        return lambda columns: ~mask(columns)

    def _grouped(self) -> Mask | None:
        if not self.accept("("):
            return None
        mask = self.any_of()
        self.expect(")")
        return mask

    def _comparison(self) -> Mask:
        left = self.side()
        if self.accept("not"):
            self.expect("in")
            inside = self._membership(left)
            return lambda columns: ~inside(columns)
        if self.accept("in"):
            return self._membership(left)
        symbol = self.accept(*_COMPARE)
        if symbol is None:
            return self._bare(left)
        right = self.side()
        if self.next and self.next.text in _COMPARE:
            raise self.error("a chain of comparisons", "two comparisons joined by 'and'")
        if left.name is None and right.name is None:
            raise self.error(f"{left.label()} {symbol} {right.label()} compares two values", "a column on one side")
        return lambda columns: _compare(_COMPARE[symbol], left, right, columns)

    def _bare(self, side: _Side) -> Mask:
        if side.name is None:
            raise self.error(f"{side.label()} alone is no condition", "a comparison such as y == 1")

        def mask(columns: Columns) -> np.ndarray:
            values = _checked(side, columns)
            if values.dtype.kind != "b":
                raise ValueError(f"where: {side.label()} alone is no condition (dtype {values.dtype}); compare it")
            return values

        return mask

    def _membership(self, left: _Side) -> Mask:
        if left.name is None:
            raise self.error(f"{left.label()} before 'in'", "a column before 'in'")
        self.expect("[")
        options = [self._option()]
        while self.accept(","):
            options.append(self._option())
        self.expect("]")
        return lambda columns: np.logical_or.reduce(
            [_compare(operator.eq, left, option, columns) for option in options]
        )

    def _option(self) -> _Side:
        side = self.side()
        if side.name is not None:
            raise self.error(f"{side.label()} inside [..]", "numbers or quoted text")
        return side

    def side(self) -> _Side:
        token = self.next
        if token is None or token.kind in ("op", "mark") or token.text in ("and", "or", "not", "in"):
            raise self.error(f"found {token.text!r}" if token else "the filter ends", "a column or a value")
        self.position += 1
        if token.kind == "number":
            return _Side(None, float(token.text) if re.search(r"[.eE]", token.text) else int(token.text))
        if token.kind == "text":
            return _Side(None, re.sub(r"\\(.)", r"\1", token.text[1:-1]))
        name = token.text.strip("`")
        if token.kind == "word" and name in ("True", "False") and name not in self.names:
            return _Side(None, name == "True")
        return self._column(name)

    def _column(self, name: str) -> _Side:
        if name not in self.names:
            raise ValueError(
                f"where: no column {name!r}; {close_names(name, self.names)}. A text value needs quotes: '{name}'"
            )
        return _Side(name, None)


def _tokens(expression: str) -> list[Token]:
    tokens, at = [], 0
    end = len(expression.rstrip())
    while at < end:
        match = _TOKEN.match(expression, at)
        if match is None:
            raise ValueError(
                f"where: cannot read {expression[at : at + 10].strip()!r} at character {at + 1} of {expression!r}; "
                "use comparisons of columns with numbers or quoted text, joined by and, or, not"
            )
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match.group(kind), match.start(kind)))
        at = match.end()
    return tokens


def _checked(side: _Side, columns: Columns) -> np.ndarray:
    values = np.asarray(side.get(columns))
    if values.ndim > 1:
        raise ValueError(f"where: {side.label()} holds {values.shape[1]} numbers a row and cannot be compared")
    return values


def _compare(compare: Callable[[Any, Any], Any], left: _Side, right: _Side, columns: Columns) -> np.ndarray:
    a, b = _checked(left, columns), _checked(right, columns)
    if (a.dtype.kind == "U") != (b.dtype.kind == "U"):
        text, number = (left, right) if a.dtype.kind == "U" else (right, left)
        raise ValueError(
            f"where: {text.label()} is text and {number.label()} is not; "
            "quote the value to compare it with text, unquote it to compare it with numbers"
        )
    # Python scalars, not 0-d arrays: NumPy then compares an int8 column with 300 without overflow.
    return np.asarray(compare(a if left.name else left.value, b if right.name else right.value))
