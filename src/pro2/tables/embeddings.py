"""The embedding table: ids, one embedding matrix, typed columns; one file that opens in milliseconds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

import pro2
from pro2.tables import formats, frames
from pro2.tables.arrow import to_batch
from pro2.tables.arrow_columns import pyarrow
from pro2.tables.columns import as_column, as_ids, check_unique, objects, read_only
from pro2.tables.content import RESERVED, Content, as_embeddings, not_finite, ready
from pro2.tables.digest import Digest, seal_of, to_json
from pro2.tables.errors import TableError
from pro2.tables.rows import Rows


class EmbeddingTable(Rows):
    """Rows of embeddings with their ids and typed columns.

    Every array that comes out is read-only. Filters are lazy: they hold row numbers, and copy embedding rows only
    when ``embeddings`` is read.

    Parameters
    ----------
    embeddings : array of shape (n_rows, width)
        float16, float32 or float64; not copied when C-ordered.
    ids : sequence of str or int, optional
        One unique name per row, e.g. the relative image path. Row numbers when None.
    columns : mapping of name to array, optional
        bool, integer, float or text, one value per row (or a short row of numbers). None, NaN and pd.NA are missing
        values; text columns hold objects, None for a missing one.
    provenance : mapping, optional
        JSON values that say where the rows come from. `pro2 embed` writes ``backbone``, ``weights_digest``,
        ``layer``, ``preprocessing`` and ``image_list_digest``; saving adds ``pro2_version`` and the content digest.

    Examples
    --------
    >>> import numpy as np
    >>> table = EmbeddingTable(np.eye(3, dtype="f4"), ["a", "b", "c"], {"y": [0, 1, 1]})
    >>> table.where("y == 1").ids.tolist()
    ['b', 'c']
    """

    def __init__(
        self,
        embeddings: Any,
        ids: Any = None,
        columns: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        X = as_embeddings(embeddings)
        names = as_ids(ids, len(X))
        check_unique(names, "ids")
        checked = {_column_name(name): as_column(name, values, len(X)) for name, values in (columns or {}).items()}
        parts = {name: ready(values) for name, values in checked.items()}
        self._bind(Content(X.shape, X.dtype, lambda: [X], lambda: names, parts, _checked_provenance(provenance or {})))

    @classmethod
    def open(
        cls,
        path: str | PathLike[str],
        embedding: str | None = None,
        columns: Mapping[str, Any] | str | PathLike[str] | None = None,
    ) -> EmbeddingTable:
        """Open ``.arrow``/``.feather`` (memory-mapped), ``.parquet``, ``.npz``, ``.npy``, ``.safetensors``, ``.csv``.

        Nothing is read before it is asked for, and offsets are validated before they are used. The content is compared
        with the stored digest by `verify`, `digest` and `save`.

        Parameters
        ----------
        path : path
            A file, or the folder of a saved Hugging Face data set.
        embedding : str, optional
            Which array or column holds the embedding, when there is more than one candidate. For tables with one column
            per dimension a pattern (``e*``), a prefix (``e``) or a range (``e0:e1279``); columns are taken in the order
            of their numbers.
        columns : mapping or path of a CSV file, optional
            Only for ``.npy``: the columns; by default the CSV file of the same name beside it, if there is one.
        """
        return cls._of(formats.read(Path(path), embedding, columns))

    @classmethod
    def from_arrow(cls, data: Any, embedding: str | None = None) -> EmbeddingTable:
        """Rows of anything that speaks Arrow: a polars or pandas frame, a pyarrow table, a duckdb relation, a Hugging
        Face data set. A column ``id`` names the rows; `embedding` is chosen as in `open`.

        The other way needs no method: a table hands out an Arrow stream itself, as in ``polars.DataFrame(table)``.
        """
        return cls._of(frames.read_object(data, embedding))

    @classmethod
    def from_pandas(cls, frame: Any, embedding: str | None = None) -> EmbeddingTable:
        """Rows of a pandas data frame, with the embedding in one column per dimension or in one column of arrays.

        A column or index called ``id`` names the rows; so does an index of texts without a name.
        """
        return cls._of(frames.read_frame(frame, embedding))

    def to_pandas(self) -> Any:
        """A pandas data frame: ``id``, the columns, and one column per dimension (``e0``, ``e1``, ...)."""
        return frames.to_frame(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows for any library that speaks Arrow; see the Arrow PyCapsule interface."""
        return pyarrow().Table.from_batches([to_batch(self, {})]).__arrow_c_stream__(requested_schema)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """The embedding matrix: a table can be given where an array is expected."""
        X = np.asarray(self.embeddings, dtype=dtype)
        return X.copy() if copy else X

    def save(self, path: str | PathLike[str], force: bool = False, *, spreadsheet: bool = True) -> Path:
        """Write atomically; the suffix chooses the format. An existing file is kept unless ``force``.

        In CSV files, text that a spreadsheet would take for a formula gets a quote before it, which `open` takes away
        again; ``spreadsheet=False`` writes it as it is.
        """
        provenance = {"pro2_version": pro2.__version__, **self.provenance}
        meta = {"provenance": provenance, "digest": self.digest, "seal": seal_of(self.digest, provenance)}
        return formats.write(Path(path), self, meta, force, spreadsheet)

    @cached_property
    def digest(self) -> str:
        """Digest of ids, rows and columns, computed from them; a file that stores another one is refused as damaged."""
        whole, _ = self._content.verified
        if self._lazy_rows is None:
            return whole
        digest = Digest((self.n_rows, self.width), self.dtype)
        for X, _ in self.iter_batches():
            digest.rows(X)
        return digest.columns(self.columns, self.column)

    @property
    def origin_digest(self) -> str | None:
        """Digest of the whole file or table that these rows were taken from; None as long as nobody verified it."""
        return self._content.verified[0] if "verified" in self._content.__dict__ else None

    def verify(self) -> str:
        """Read everything once: compare it with the stored digest, and check that ids are unique and rows finite.

        Returns
        -------
        str
            The digest. Raises ValueError when the file was truncated or altered, an id repeats, or an embedding
            of this table is not finite; the message says what to do.
        """
        self.check()
        return self.digest

    def check(self) -> None:
        """What `verify` does, without the digest of these rows: a selection costs no second pass."""
        _, bad = self._content.verified
        self._refuse_rows(bad if self._lazy_rows is None else np.intersect1d(bad, self.rows))

    def _refuse_rows(self, bad: np.ndarray) -> None:
        if len(bad):
            more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
            raise TableError(
                f"the embedding of row {bad[0]} (id {self._content.ids[bad[0]]!r}){more} of {self._content.origin} is "
                "not finite; embed it again, or leave the row out with where() or take()"
            )

    def X_y(self, label: str) -> tuple[np.ndarray, np.ndarray]:
        """Embeddings and labels for an estimator; rows without a label have None, NaN or empty text for one.

        An embedding that is not finite is refused under its id.
        """
        y = self.one_per_row(label, "a label is")
        self._refuse_rows(self.rows[not_finite(self.embeddings)])
        return self.embeddings, y

    def spread(self, ids: Any, values: Any) -> np.ndarray:
        """Values given under ids, brought into this table's row order; None for rows that have none.

        An id that the file does not have is an error: a label that reaches no row is a label lost. An id that a filter
        left out is not.
        """
        keys = as_ids(ids, len(values)).tolist()
        strange = set(keys) - set(self._content.ids.tolist())
        if strange:
            raise TableError(
                f"{len(strange)} of {len(keys)} ids are not in {self._content.origin}, e.g. {min(strange)!r}; "
                f"its first is {self._content.ids[0]!r}: check that both write ids the same way"
            )
        found = dict(zip(keys, np.asarray(values).tolist()))
        return read_only(objects([found.get(name) for name in self.ids.tolist()]))


def _column_name(name: Any) -> str:
    if not isinstance(name, str) or not name or name in RESERVED:
        raise TableError(
            f"a column cannot be called {name!r}; use a text other than {' or '.join(map(repr, RESERVED))}"
        )
    return name


def _checked_provenance(provenance: Mapping[str, Any]) -> dict[str, Any]:
    try:
        to_json(dict(provenance))
    except TypeError as error:
        raise TableError(f"provenance must hold JSON values (text, numbers, lists, mappings): {error}") from error
    return dict(provenance)
