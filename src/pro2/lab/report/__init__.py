"""Reads result rows, never fits: tables, figures, claims, pages."""
