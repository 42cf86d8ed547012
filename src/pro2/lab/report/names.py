"""Names come from files and are not to be trusted: one function for each place that a name ends up in."""

from __future__ import annotations

import hashlib
import html
import re
from typing import Any

_LONGEST = 60
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|$~])")


def slug(name: Any) -> str:
    """Part of a file name: letters, digits, dots and dashes; what had to be changed ends in a digest, to stay apart."""
    text = str(name)
    plain = re.sub(r"[^A-Za-z0-9.+_-]+", "-", text).strip("-.")[:_LONGEST]
    if plain and plain == text:
        return plain
    return f"{plain}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:8]}".strip("-")


def html_text(value: Any) -> str:
    """Text of a page or of an attribute."""
    return html.escape(_plain(value), quote=True)


def markdown_text(value: Any) -> str:
    """Text of a Markdown page, inside and outside tables; nothing in it is markup."""
    return _MARKUP.sub(r"\\\1", _plain(value).replace("&", "&amp;"))


def figure_text(value: Any) -> str:
    """Text of a figure: short, and no formula."""
    text = _plain(value)
    return (text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…").replace("$", r"\$")


def _plain(value: Any) -> str:
    """Without control characters, which could hide or turn round what follows."""
    return _CONTROL.sub(" ", str(value)).encode("utf-8", "replace").decode("utf-8")
