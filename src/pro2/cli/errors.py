"""What of a user's text may reach the terminal."""

from __future__ import annotations

import re

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """Control characters of labels, ids and file names as escapes: they must not reach the terminal."""
    return _CONTROL.sub(lambda found: found.group().encode("unicode_escape").decode(), text)
