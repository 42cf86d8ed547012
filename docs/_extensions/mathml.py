"""Formulas as MathML: every current browser draws it, so no page needs a script or a network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    # latex2mathml numbers and aligns by itself; Sphinx wraps several lines in `split`
    text = re.sub(r"\\label\{[^}]*\}", "", node.astext())
    translator.body.append(f'<div class="math-block">{convert(text, display="block")}</div>')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, Any]:
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True}
