"""prepare.json: which inputs, options and package versions a data-bin was made from."""

import json
import platform
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.prep.options import Options

RECORD = "prepare.json"
PACKAGES = ("relumt", "fairseq-fixed", "torch", "sacremoses", "subword-nmt", "sentencepiece")


def describe_files(files: dict[str, Path]) -> dict[str, dict[str, str]]:
    """Return path and SHA-256 of each file, by its name (`train.de`, `train.docs` ...)."""
    return {name: {"path": str(path), "sha256": file_sha256(path)} for name, path in files.items()}


def differences(out: Path, options: Options, inputs: dict[str, dict[str, str]]) -> list[str]:
    """Describe how options and input contents differ from those that the data-bin `out` was made from.

    Raises:
        UserError: `out` was not created by `relumt prepare`.
    """
    try:
        record = json.loads((out / RECORD).read_text(encoding="utf-8"))
        old_options, old_inputs = record["options"], record["inputs"]
    except (OSError, ValueError, KeyError):
        raise UserError(f"{out}: exists but was not created by relumt prepare; choose another --out") from None
    found = [
        f"{name} was {old_options.get(name)}, now {value}"
        for name, value in asdict(options).items()
        if old_options.get(name) != value
    ]
    for name in sorted(inputs.keys() | old_inputs.keys()):
        if inputs.get(name, {}).get("sha256") != old_inputs.get(name, {}).get("sha256"):
            found.append(f"{name} has changed")
    return found


def write_record(
    folder: Path,
    options: Options,
    inputs: dict[str, dict[str, str]],
    counts: dict[str, object],
    dictionaries: dict[str, dict[str, int | str]],
) -> None:
    """Write `folder`/prepare.json.

    The fields at the top say what to undo before scoring. `tokenized` is true for Moses-tokenized text, whether it was
    tokenized here or before. `plain_references` says that text/ also has the held-out texts before tokenization.
    """
    record = {
        "source": options.source,
        "target": options.target,
        "tokenized": options.tokenized,
        "lowercased": options.lowercase,
        "bpe": options.bpe,
        "plain_references": not options.tokenized_input or f"test.raw.{options.target}" in inputs,
        "options": asdict(options),
        "inputs": inputs,
        "counts": counts,
        "dictionaries": dictionaries,
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in PACKAGES},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (folder / RECORD).write_text(text + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
