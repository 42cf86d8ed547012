"""What `pro2 inspect` says of files that are neither tables nor models: sessions, pages, JSON, pictures."""

from __future__ import annotations

import contextlib
import html
import json
import re
from pathlib import Path
from typing import Any

JOURNAL = "journal.sqlite"
_PAGES = ("index.html", "demo.html")
_TITLE = re.compile(r"<title>(.*?)</title>", re.DOTALL)


def describe_other(path: Path) -> dict[str, Any] | None:
    """What the file or folder is; None for what is not of these kinds."""
    if path.is_dir():
        if (path / JOURNAL).is_file():
            return _session(path / JOURNAL)
        pages = [path / name for name in _PAGES if (path / name).is_file()]
        files = sorted(each.name for each in path.iterdir())
        return {**_page(pages[0]), "what": "page with its files", "files": files} if pages else None
    readers = {".sqlite": _session, ".html": _page, ".json": _json} | dict.fromkeys((".png", ".svg", ".pdf"), _picture)
    reader = readers.get(path.suffix.lower())
    return None if reader is None else reader(path)


def _session(path: Path) -> dict[str, Any]:
    """Counted without the journal's own class, which would take its lock and bring it up to date."""
    import sqlite3

    # A journal that nobody writes has no log beside it; reading it must not make one.
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    try:
        with contextlib.closing(sqlite3.connect(f"{path.resolve().as_uri()}?{how}", uri=True, timeout=0.2)) as db:
            kinds = dict(db.execute("SELECT kind, count(*) FROM events GROUP BY kind ORDER BY kind").fetchall())
            people = [name for (name,) in db.execute("SELECT DISTINCT annotator FROM events WHERE kind = 'label'")]
            intact = db.execute("PRAGMA quick_check").fetchone()[0] == "ok"
    except sqlite3.DatabaseError as error:
        if "locked" in str(error):
            raise ValueError(f"{path} is in use by `pro2 label`; end that first") from error
        raise ValueError(f"{path} is not a journal of `pro2 label` ({error})") from error
    files = sorted(each.name for each in path.parent.iterdir() if each.name != path.name)
    named = [name for name in people if name]
    return {"what": "labelling session", "events": kinds, "annotators": named, "files": files, "intact": intact}


def _page(path: Path) -> dict[str, Any]:
    found = _TITLE.search(path.read_text(encoding="utf-8", errors="replace"))
    return {"what": "page", "title": html.unescape(found[1]) if found else None, "bytes": path.stat().st_size}


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is damaged: it is no JSON ({str(error)[:200]})") from error
    if isinstance(content, dict):
        return {"what": "JSON object", "keys": list(content), "intact": True}
    is_list = isinstance(content, list)
    entries = len(content) if is_list else 1
    return {"what": "JSON list" if is_list else "JSON value", "entries": entries, "intact": True}


def _picture(path: Path) -> dict[str, Any]:
    return {"what": f"picture ({path.suffix[1:].lower()})", "bytes": path.stat().st_size}
