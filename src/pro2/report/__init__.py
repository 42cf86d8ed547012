"""Reads result rows, never fits: tables, figures, one page."""
