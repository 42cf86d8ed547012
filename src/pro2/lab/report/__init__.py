"""Reads result rows, never fits: tables, figures, one page."""

from __future__ import annotations

from pro2.lab.report.write import write_report

__all__ = ["write_report"]
