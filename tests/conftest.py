"""Shared by all tests: where the real embeddings are, if they are here at all."""

from pathlib import Path

import pytest

REAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def real_data() -> Path:
    """Folder of real embeddings; a machine without it skips, it never fails."""
    if not REAL_DATA.is_dir():
        pytest.skip(f"real embeddings are not at {REAL_DATA}")
    return REAL_DATA
