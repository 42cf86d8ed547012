"""Model files on the Hugging Face Hub: one safetensors file and a card made from its provenance.

Files from the hub are read by `pro2.load`, which runs nothing that is in them.
"""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

from pro2.extras import imported, one_line

FILE, CARD = "model.safetensors", "README.md"
_INSTALL = "the hub needs huggingface_hub; run: pip install 'pro2[hub]'"
_TEMPLATE = """---
{{ card_data }}
---

# {{ title }}

A `{{ type }}` made with pro2, which implements [Project and Probe](https://arxiv.org/abs/2302.05441).
It takes embeddings of width {{ width }}.

```python
from pro2.hub import from_pretrained

model = from_pretrained({{ name }})
model.{{ use }}
```
{% if names %}
{{ kind }} ({{ names | length }}): {{ names[:20] | join(", ") }}{{ ", ..." if names | length > 20 }}
{% endif %}
| learned from | |
|---|---|
{% for name, value in provenance %}| {{ name }} | {{ value }} |
{% else %}| nothing recorded | |
{% endfor %}"""


def push_to_hub(
    estimator: Any, repo_id: str, *, private: bool = False, token: str | None = None,
    message: str = "Upload a pro2 model", api: Any = None,
) -> str:  # fmt: skip
    """Upload a fitted estimator, with a model card, to a repository that is created if it does not exist.

    Parameters
    ----------
    estimator : any fitted estimator of this package that can be saved
    repo_id : str
        `owner/name`.
    private : bool
        Whether a new repository is private; an existing one stays as it is.
    token : str, optional
        By default the one that `hf auth login` stored.
    message : str
        Of the commit, whose address is returned.
    api : huggingface_hub.HfApi, optional
        Another client.
    """
    client = api or imported("huggingface_hub", _INSTALL).HfApi(token=token, library_name="pro2")
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / FILE)
        (Path(folder) / CARD).write_text(model_card(estimator, repo_id), encoding="utf-8")
        client.create_repo(repo_id, private=private, exist_ok=True)
        return str(client.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message))


def from_pretrained(
    source: str | PathLike[str], *, revision: str | None = None, token: str | None = None, api: Any = None
) -> Any:
    """Read a model from a folder that holds `model.safetensors`, or from `owner/name` on the hub or in its cache.

    `revision` is a branch, tag or commit: name a commit for results that must not change.
    """
    from pro2.estimators.files import load

    if Path(source).is_dir():
        return load(Path(source) / FILE)
    client = api or imported("huggingface_hub", _INSTALL).HfApi(token=token, library_name="pro2")
    try:
        path = client.hf_hub_download(repo_id=str(source), filename=FILE, revision=revision)
    except (OSError, ValueError) as error:
        raise OSError(
            f"{source} is neither a folder nor a model on the hub that can be reached from here ({one_line(error)}); "
            f"give a folder that holds {FILE}, or owner/name"
        ) from error
    return load(path)


def model_card(estimator: Any, name: str = "model") -> str:
    """A model card in Markdown: what the file is, how it is used, and what it learned from."""
    hub = imported("huggingface_hub", _INSTALL)
    kind = next((word for word in ("labels", "classes") if hasattr(estimator, f"{word}_")), "")
    use = "predict(X, target=...)" if hasattr(estimator, "targets_") else "predict(X)"
    if hasattr(estimator, "adapt"):
        use = "adapt(X_target, y_target)  # embeddings and a few labels"
    provenance = []
    for part, values in sorted(estimator.provenance.items()):
        pairs = values.items() if isinstance(values, dict) else [("", values)]
        provenance += [(_inline(f"{part} {key}"), _inline(value)) for key, value in pairs if value is not None]
    card = hub.ModelCard.from_template(
        hub.ModelCardData(library_name="pro2", tags=["pro2", "domain-adaptation", "few-shot", "linear-probe"]),
        template_str=_TEMPLATE,
        title=_inline(name),
        name=repr(name),
        type=type(estimator).__name__,
        use=use if hasattr(estimator, "predict") else "transform(X)",
        width=estimator.n_features_in_,
        kind=kind.capitalize(),
        names=[_inline(label) for label in getattr(estimator, f"{kind}_").tolist()] if kind else [],
        provenance=provenance,
    )
    return str(card)


def _inline(value: Any) -> str:
    """Text on one line that ends no table cell and opens no tag."""
    return " ".join(str(value).split()).replace("|", "\\|").replace("<", "&lt;")
