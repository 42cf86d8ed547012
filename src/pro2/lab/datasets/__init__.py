"""One file per data set: official layout, licence, columns, source rows and named targets."""

from __future__ import annotations

from pro2.lab.datasets.base import DataSet, ImageList, Report
from pro2.lab.datasets.registry import (
    get_dataset,
    list_datasets,
    load_dataset,
    open_dataset,
    register_dataset,
    source_rows,
    targets,
)

__all__ = [
    "DataSet",
    "ImageList",
    "Report",
    "get_dataset",
    "list_datasets",
    "load_dataset",
    "open_dataset",
    "register_dataset",
    "source_rows",
    "targets",
]
