"""The record of what a folder was made from, which says whether it is up to date."""

from dataclasses import asdict, dataclass, field
from pathlib import Path

from relumt.corpora.bitext import Inputs
from relumt.errors import UserError, print_status
from relumt.files import changed_files, encode_json, file_sha256, read_json

PREPARE_RECORD = "prepare.json"
"""The record of a data-bin."""

Scalar = str | int | float | bool | None


def dictionary_path(data_bin: Path, language: str) -> Path:
    """Return the path of fairseq's dictionary of a language in a data-bin."""
    return data_bin / f"dict.{language}.txt"


def gold_alignments_path(data_bin: Path, subset: str) -> Path:
    """Return the path of the gold alignments of `subset` in a data-bin, which need not exist."""
    return data_bin / "text" / f"{subset}.align"


@dataclass(frozen=True)
class InputFile:
    """A file that a folder was made from: its path and the SHA-256 of its content."""

    path: str
    sha256: str


@dataclass(frozen=True)
class Record:
    """What a folder was made from; the file with it may say more.

    Attributes:
        options: what the user chose.
        inputs: the input files by name (`train.de`).
        files: SHA-256 of every other file of the folder by its path there.
    """

    options: dict[str, Scalar]
    inputs: dict[str, InputFile]
    files: dict[str, str] = field(default_factory=dict)


def describe_files(files: Inputs) -> dict[str, InputFile]:
    """Return path and SHA-256 of each file, by its name (`train.de`, `train.docs` ...)."""
    return {name: InputFile(str(path), file_sha256(path)) for name, path in files.items()}


def is_up_to_date(
    out: Path, name: str, options: dict[str, Scalar], inputs: dict[str, InputFile], overwrite: bool, force: bool = False
) -> bool:
    """Return whether the folder `out`, as the record `name` in it says, was made from these inputs with these options.

    Args:
        out: the folder.
        name: name of the file with its record.
        options: what the user chose.
        inputs: the input files.
        overwrite: whether a folder that is out of date may be replaced.
        force: replace one that is up to date, too.

    Raises:
        UserError: it may not be replaced, or relumt did not make it, or replacing it would delete files of others.
    """
    if not out.is_dir() or not any(out.iterdir()):
        return False
    try:
        record = read_json(out / name, Record, "choose another --out, or delete the folder")
    except FileNotFoundError:
        raise UserError(f"{out}: exists but was not created by this command; choose another --out") from None
    changed = [key for key in options.keys() | record.options if record.options.get(key) != options.get(key)]
    changes = [f"{key} was {record.options.get(key)}, now {options.get(key)}" for key in sorted(changed)]
    sums, recorded = ({key: file.sha256 for key, file in files.items()} for files in (inputs, record.inputs))
    changes += [f"{key} has changed" for key in sorted(sums.keys() | recorded) if sums.get(key) != recorded.get(key)]
    changes = changes or [f"{path} is not as it was written" for path in changed_files(out, record.files)]
    if not changes and not force:
        print_status(f"{out} is up to date")
        return True
    if not overwrite:
        raise UserError(f"{out} exists, but {', '.join(changes)}; give --overwrite or another --out")
    paths = (path.relative_to(out).as_posix() for path in sorted(out.rglob("*")) if not path.is_dir())
    if foreign := [path for path in paths if path not in {name, *record.files}]:
        raise UserError(f"{out}: --overwrite would delete {', '.join(foreign[:3])}, which this command did not write")
    return False


def write_record(
    folder: Path, name: str, options: dict[str, Scalar], inputs: dict[str, InputFile], **more: object
) -> None:
    """Write the record of a complete folder; `more` are further fields, which come first."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {path.relative_to(folder).as_posix(): file_sha256(path) for path in paths}
    (folder / name).write_text(encode_json(more | asdict(Record(options, inputs, files))), encoding="utf-8")
