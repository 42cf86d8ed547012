"""Does fine-tuning the last block help? Three steps, so that the middle one can run on a machine with a GPU alone.

    python benchmarks/finetune.py activations PHOTOS build/finetune     # decode, run the blocks that stay: a processor
    python benchmarks/finetune.py measure build/finetune rows.json      # train and adapt: a GPU, if there is one
    python benchmarks/finetune.py page rows.json docs/results/finetune.md

PHOTOS holds source/CLASS/*.jpg and one folder for each target; `--source train-all` for the collages.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from finetuning import TITLE, Photographs, measure, read_photographs, read_rows, write_page
from harness import machine


def activations(args: argparse.Namespace) -> None:
    photos = read_photographs(args.photos, args.source)
    args.folder.mkdir(parents=True, exist_ok=True)
    np.save(args.folder / "inputs.npy", photos.inputs.numpy())
    np.savez(args.folder / "labels.npz", label=photos.label, domain=photos.domain, source=photos.source)
    torch.save(photos.block, args.folder / "block.pth")
    print(f"{len(photos.label)} images, {photos.inputs.nbytes / 2**20:.0f} MiB, in {args.folder}")


def load(folder: Path) -> Photographs:
    with np.load(folder / "labels.npz") as found:
        label, domain, source = found["label"], found["domain"], str(found["source"])
    inputs = torch.from_numpy(np.load(folder / "inputs.npy"))
    block = torch.load(folder / "block.pth", map_location="cpu", weights_only=False)  # written by the first step
    return Photographs(inputs, label, domain, block, source)


def run(args: argparse.Namespace) -> None:
    photos = load(args.folder)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    began = time.monotonic()
    rows = []
    for row in measure(photos, device, args.seeds):
        rows.append(row)
        print(json.dumps(row), flush=True)
    seconds = round(time.monotonic() - began)
    facts = {"data": args.data, **machine(), "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
             "torch": torch.__version__, "seconds": seconds, "images": len(photos.label)}  # fmt: skip
    args.rows.parent.mkdir(parents=True, exist_ok=True)
    args.rows.write_text(json.dumps({"facts": facts, "rows": rows}, indent=1) + "\n")


def page(args: argparse.Namespace) -> None:
    print(write_page(*read_rows(args.rows), args.page, args.title))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    steps = parser.add_subparsers(required=True)
    first = steps.add_parser("activations")
    first.add_argument("photos", type=Path)
    first.add_argument("folder", type=Path)
    first.add_argument("--source", default="source")
    first.set_defaults(work=activations)
    second = steps.add_parser("measure")
    second.add_argument("folder", type=Path)
    second.add_argument("rows", type=Path)
    second.add_argument("--seeds", type=int, default=5)
    second.add_argument("--data", default="photographs", help="what the images are, for the page")
    second.set_defaults(work=run)
    third = steps.add_parser("page")
    third.add_argument("rows", type=Path)
    third.add_argument("page", type=Path)
    third.add_argument("--title", default=TITLE)
    third.set_defaults(work=page)
    args = parser.parse_args()
    args.work(args)


if __name__ == "__main__":
    main()
