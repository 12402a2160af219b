"""prepare.json: from what, how and with what a data-bin was made, and whether it is up to date."""

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


def describe_inputs(inputs: dict[str, Path]) -> dict[str, dict[str, str]]:
    """Return path and SHA-256 of each input by its name (`train.de`, `train.docs` ...)."""
    return {name: {"path": str(path), "sha256": file_sha256(path)} for name, path in inputs.items()}


def differences(out: Path, options: Options, inputs: dict[str, dict[str, str]]) -> list[str]:
    """Return in what the data-bin in `out` was made otherwise than by these options from these inputs.

    What counts of the inputs is their content, not their path. Raises `UserError` if `out` is not a folder
    that this command made.
    """
    try:
        record = json.loads((out / RECORD).read_text(encoding="utf-8"))
        old_options, old_inputs = record["options"], record["inputs"]
    except (OSError, ValueError, KeyError):
        raise UserError(f"{out}: exists but was not made by relumt prepare; choose another --out") from None
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
    steps: dict[str, object],
    dictionaries: dict[str, dict[str, int | str]],
    plain_references: bool,
) -> None:
    """Write `folder`/prepare.json.

    The fields at the top say what to undo before scoring: `tokenized` is true for Moses-tokenised text,
    also where it was given so (`options.tokenized_input`). plain_references: text/ has the held-out texts as they were
    before tokenisation.
    """
    record = {
        "source": options.source,
        "target": options.target,
        "tokenized": options.tokenized,
        "lowercased": options.lowercase,
        "bpe": options.bpe,
        "plain_references": plain_references,
        "options": asdict(options),
        "inputs": inputs,
        "steps": steps,
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
