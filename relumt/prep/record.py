"""prepare.json: which inputs, options and package versions a data-bin was made from."""

import json
import platform
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from itertools import product
from pathlib import Path

from relumt.errors import UserError
from relumt.fairseq_version import describe_fairseq
from relumt.files import changed_files, file_sha256, require_only
from relumt.json_files import read_json
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.options import HELD_OUT, SPLITS, Options

PREPARE_RECORD = "prepare.json"
PACKAGES = ("relumt", "torch", "sacremoses", "subword-nmt", "sentencepiece")


@dataclass(frozen=True)
class InputFile:
    """A file that a data-bin was made from: its path and the SHA-256 of its content."""

    path: str
    sha256: str


@dataclass(frozen=True)
class PrepareRecord:
    """What prepare.json says about how a data-bin was made.

    Attributes:
        options: see `Options`.
        inputs: the input files by name (`train.de`).
        files: SHA-256 of every other file of the data-bin by its path there; empty in those of earlier versions.
    """

    options: dict[str, str | int | float | bool | None]
    inputs: dict[str, InputFile]
    files: dict[str, str] = field(default_factory=dict)


def describe_files(files: dict[str, Path]) -> dict[str, InputFile]:
    """Return path and SHA-256 of each file, by its name (`train.de`, `train.docs` ...)."""
    return {name: InputFile(str(path), file_sha256(path)) for name, path in files.items()}


def read_record(out: Path) -> PrepareRecord:
    """Return how the data-bin `out` was made; raises UserError if `relumt prepare` did not make it."""
    try:
        return read_json(out / PREPARE_RECORD, PrepareRecord, "choose another --out, or delete the folder")
    except FileNotFoundError:
        raise UserError(f"{out}: exists but was not created by relumt prepare; choose another --out") from None


def differences(out: Path, options: Options, inputs: dict[str, InputFile]) -> list[str]:
    """Describe how options and input contents differ from those that the data-bin `out` was made from.

    Files of `out` that are missing or not as they were written count as differences.

    Raises:
        UserError: `out` was not created by `relumt prepare`.
    """
    record = read_record(out)
    found = [
        f"{name} was {record.options.get(name)}, now {value}"
        for name, value in asdict(options).items()
        if record.options.get(name) != value
    ]
    for name in sorted(inputs.keys() | record.inputs.keys()):
        digests = [files[name].sha256 if name in files else None for files in (inputs, record.inputs)]
        if digests[0] != digests[1]:
            found.append(f"{name} has changed")
    found += [f"{path.name} is missing" for path in _files(out, options, inputs) if not path.is_file()]
    return found or [f"{name} is not as it was written" for name in changed_files(out, record.files)]


def require_own_files(out: Path) -> None:
    """Raise UserError if the data-bin `out` has files that `relumt prepare` did not write.

    Those of data-bins of earlier versions are unknown: then nothing is refused.
    """
    if written := read_record(out).files:
        require_only(out, [PREPARE_RECORD, *written], "relumt prepare")


def _files(out: Path, options: Options, inputs: Iterable[str]) -> Iterator[Path]:
    """Yield the files of a data-bin that is made with `options` from `inputs`, the names of the input files."""
    for language in options.languages:
        yield out / f"dict.{language}.txt"
        for split, suffix in product(SPLITS, ("idx", "bin")):
            yield out / f"{split}.{options.source}-{options.target}.{language}.{suffix}"
        for split in HELD_OUT:
            yield out / "text" / f"{split}.{language}"
            if not options.tokenized_input:
                yield out / "text" / f"{split}.raw.{language}"
    if options.bpe != "none":
        yield out / BPE_METHODS[options.bpe].file
    for split in SPLITS:
        if options.documents or f"{split}.docs" in inputs:
            yield out / f"{split}.docs"
    for name in inputs:
        if name.endswith((".subsets.json", ".align")) or ".raw." in name:
            yield out / "text" / name


def write_record(
    folder: Path,
    options: Options,
    inputs: dict[str, InputFile],
    counts: dict[str, object],
    dictionaries: dict[str, dict[str, int | str]],
    punctuation_normalized: bool,
) -> None:
    """Write `folder`/prepare.json.

    The fields at the top say what to undo before scoring. `tokenized` is true for Moses-tokenized text, whether it was
    tokenized here or before. `plain_references` says that text/ also has the held-out texts before tokenization.
    `punctuation_normalized` says that the source's punctuation was normalized before it was tokenized. `bpe_sha256` is
    the checksum of the merges or the model, with which translation splits words again. `files` has the checksums of all
    files, which must be complete.
    """
    record = {
        "source": options.source,
        "target": options.target,
        "tokenized": options.tokenized,
        "lowercased": options.lowercase,
        "punctuation_normalized": punctuation_normalized,
        "bpe": options.bpe,
        "bpe_sha256": file_sha256(folder / BPE_METHODS[options.bpe].file) if options.bpe != "none" else None,
        "plain_references": not options.tokenized_input or f"test.raw.{options.target}" in inputs,
        "options": asdict(options),
        "inputs": {name: asdict(described) for name, described in inputs.items()},
        "counts": counts,
        "dictionaries": dictionaries,
        "versions": {"python": platform.python_version(), "fairseq": str(describe_fairseq())}
        | {name: _version(name) for name in PACKAGES},
        "files": {
            path.relative_to(folder).as_posix(): file_sha256(path)
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        },
    }
    text = json.dumps(record, indent=2, ensure_ascii=False)
    (folder / PREPARE_RECORD).write_text(text + "\n", encoding="utf-8")


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
