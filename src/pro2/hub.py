"""Model files on the Hugging Face Hub: one safetensors file and a card made from its provenance.

Files from the hub are read by `pro2.load`, which runs nothing that is in them.
"""

from __future__ import annotations

import tempfile
from os import PathLike
from pathlib import Path
from typing import Any

from pro2.extras import imported

FILE, CARD = "model.safetensors", "README.md"
_KINDS = {
    "ProjectAndProbe": "a model fitted on a source, ready to be adapted",
    "LinearClassifier": "a classifier adapted to a target",
    "Projection": "a ranked projection",
    "Probe": "a linear probe",
    "ProbeBank": "a bank of linear probes",
    "MultiLabelProjectAndProbe": "a model of several yes-or-no labels fitted on a source, ready to be adapted",
    "MultiLabelClassifier": "a classifier of several yes-or-no labels adapted to a target",
}
_USE = {
    "ProjectAndProbe": "adapted = model.adapt(X_target, y_target)  # embeddings and a handful of labels",
    "MultiLabelProjectAndProbe": "adapted = model.adapt(X_target, Y_target)  # embeddings and a matrix of 0, 1 and NaN",
    "Projection": "features = model.transform(X)",
    "ProbeBank": "model.predict(X, target=...)",
}


def push_to_hub(
    estimator: Any,
    repo_id: str,
    *,
    private: bool = False,
    token: str | None = None,
    message: str = "Upload a pro2 model",
    api: Any = None,
) -> str:
    """Upload a fitted estimator, with a model card, to a repository that is made if it is not there.

    Parameters
    ----------
    estimator : any estimator of this package that can be saved
        Fitted, or what `adapt` returned.
    repo_id : str
        `owner/name`.
    private : bool
        Whether a new repository is private; of one that is there nothing is changed.
    token : str, optional
        By default the one that `hf auth login` stored.
    message : str
        Of the commit.
    api : huggingface_hub.HfApi, optional
        Another client.

    Returns
    -------
    str
        Address of the commit.
    """
    client = _client(token) if api is None else api
    with tempfile.TemporaryDirectory() as folder:
        estimator.save(Path(folder) / FILE)
        (Path(folder) / CARD).write_text(model_card(estimator, repo_id), encoding="utf-8")
        client.create_repo(repo_id, private=private, exist_ok=True)
        return str(client.upload_folder(repo_id=repo_id, folder_path=folder, commit_message=message))


def from_pretrained(
    place: str | PathLike[str], *, revision: str | None = None, token: str | None = None, api: Any = None
) -> Any:
    """Read a model from a folder, or from the hub (and its cache, when there is no network).

    Parameters
    ----------
    place : path or str
        A folder that holds `model.safetensors`, or `owner/name` on the hub.
    revision : str, optional
        Branch, tag or commit; name a commit for results that must not change.
    token : str, optional
        For private repositories.
    api : huggingface_hub.HfApi, optional
        Another client.
    """
    from pro2.estimators.files import load

    if Path(place).is_dir():
        return load(Path(place) / FILE)
    client = _client(token) if api is None else api
    try:
        path = client.hf_hub_download(repo_id=str(place), filename=FILE, revision=revision)
    except (OSError, ValueError) as error:
        why = " ".join(str(error).split())[:200]
        raise OSError(
            f"{place} is neither a folder nor a model on the hub that can be reached from here ({why}); give a folder "
            f"that holds {FILE}, or owner/name"
        ) from error
    return load(path)


def model_card(estimator: Any, name: str = "model") -> str:
    """A model card in Markdown: what the file is, how to use it, what it learned from.

    Parameters
    ----------
    estimator : fitted estimator
    name : str
        Title, and the name in the example.
    """
    kind = type(estimator).__name__
    what = next((word for word in ("labels", "classes") if hasattr(estimator, f"{word}_")), None)
    names = [] if what is None else [str(each) for each in getattr(estimator, f"{what}_").tolist()]
    lines = [
        "---",
        "library_name: pro2",
        "tags: [pro2, domain-adaptation, few-shot, linear-probe]",
        "---",
        "",
        f"# {_inline(name)}",
        "",
        f"This is {_KINDS.get(kind, kind)}, made with [pro2](https://pypi.org/project/pro2/).",
        "",
        "```python",
        "from pro2.hub import from_pretrained",
        "",
        f"model = from_pretrained({name!r})",
        _USE.get(kind, "model.predict(X)  # embeddings of the backbone below"),
        "```",
        "",
        f"It takes embeddings of width {estimator.n_features_in_}.",
    ]
    if what is not None:
        shown = ", ".join(map(_inline, names[:20])) + (", ..." if len(names) > 20 else "")
        lines += ["", f"{what.capitalize()} ({len(names)}): {shown}"]
    return "\n".join([*lines, *_provenance_lines(estimator), ""])


def _provenance_lines(estimator: Any) -> list[str]:
    """One table for each thing that the model learned from."""
    lines: list[str] = []
    for part, known in sorted(estimator.provenance.items()):
        lines += ["", f"## {_inline(part.capitalize())}", ""]
        if isinstance(known, dict):
            rows = [f"| {_inline(key)} | {_inline(value)} |" for key, value in known.items() if value is not None]
            lines += ["| | |", "|---|---|", *rows]
        else:
            lines.append(_inline(known))
    return lines or ["", "Nothing is recorded about the rows that it learned from."]


def _inline(value: Any) -> str:
    """Text on one line that ends no table cell and opens no tag."""
    text = " ".join(str(value).split())
    return text.replace("|", "\\|").replace("<", "&lt;")


def _client(token: str | None) -> Any:
    library = imported("huggingface_hub", "the hub needs huggingface_hub; run: pip install 'pro2[hub]'")
    return library.HfApi(token=token, library_name="pro2")
