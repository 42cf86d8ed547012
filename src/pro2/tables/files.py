"""What all file formats share: the message for damaged files, the choice of the embedding."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pro2.tables.content import seal_of

ID_NAMES = ("id", "ids")


def damaged(origin: str | Path, reason: object) -> ValueError:
    """The one message for a file that cannot be trusted."""
    return ValueError(
        f"{origin} is damaged ({reason}); restore it from a copy or make it again: `pro2 embed` with the same "
        "arguments and --force, or the script that wrote it"
    )


def choose(candidates: list[str], embedding: str | None, found: str, origin: object) -> str:
    """Which of the candidate names holds the embedding."""
    if embedding is not None and embedding not in candidates:
        raise ValueError(
            f"embedding={embedding!r} is not a floating (rows, width) array in {origin}; "
            f"candidates: {', '.join(candidates) or 'none'}; it holds {found}"
        )
    if embedding is None and len(candidates) != 1:
        what = f"{len(candidates)} candidates ({', '.join(candidates)})" if candidates else "none"
        raise ValueError(
            f"expected one floating (rows, width) embedding in {origin}, found {what}; "
            f"name it with embedding=NAME (--embedding NAME). The file holds {found}"
        )
    return embedding or candidates[0]


def stored(meta: Mapping[str, str], path: Path) -> tuple[dict[str, Any], str | None, Callable[[], None]]:
    """Provenance, digest and the check that nobody edited them."""
    if not meta:
        return {}, None, lambda: None
    try:
        provenance = json.loads(meta["provenance"])
        digest, seal = meta["digest"], meta["seal"]
    except (KeyError, ValueError) as error:
        raise damaged(path, f"unreadable metadata: {error}") from error

    def validate() -> None:
        if seal_of(digest, provenance) != seal:
            raise damaged(path, "its provenance was edited after it was written")

    return provenance, digest, validate
