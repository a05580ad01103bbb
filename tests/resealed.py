"""A stored run that says something else about itself, with digests that fit."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

from glauber.runs.folder_log import FolderLog, Manifest, write_manifest
from glauber.runs.run import Run


def digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=16).hexdigest()


def record_of(folder: Path) -> dict[str, Any]:
    """The entries of run.json."""
    return json.loads((folder / "run.json").read_text())


def reseal(folder: Path, **entries: Any) -> None:
    """Other entries in run.json, with a digest that fits."""
    record = {k: v for k, v in (record_of(folder) | entries).items() if k != "digest"}
    record["digest"] = digest(json.dumps(record, sort_keys=True).encode())
    (folder / "run.json").write_text(json.dumps(record))


def said_otherwise(folder: Path, **entries: Any) -> Path:
    """The run with other entries in its spec."""
    manifest = Manifest.read(folder)
    write_manifest(folder, replace(manifest, spec=replace(manifest.spec, **entries)))
    return folder


def committed_to(folder: Path, steps: int, source: Path | None = None) -> Path:
    """The run with so many of the steps of a source (by default its own) committed."""
    run = Run(source or folder)
    events = {name: run.read(name, 0, steps) for name in run.fields}
    if Run(folder).steps > steps:
        tokens, free = run.tokens(0), run.free
        old = folder.rename(folder.with_name(f"{folder.name}-before"))
        log = FolderLog.create(
            folder,
            run.spec,
            tokens,
            free,
            run.log.n_slots,
            rejects="accepted" in run.fields,
            save_tokenizer=lambda target: shutil.copytree(old / "tokenizer", target),
            segment_steps=run.log.segment_steps,
        )
        log.close()
        shutil.rmtree(old)
    with FolderLog(folder, write=True) as log:
        log.append({name: values[:, log.steps :] for name, values in events.items()})
    return folder
