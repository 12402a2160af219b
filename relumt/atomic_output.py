"""Files and folders that appear complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside `path` to write to; it replaces `path` if the block succeeds.

    Missing parent folders are created. If the block raises, the temporary file is removed and `path` is unchanged.

    Raises:
        UserError: `path` is a folder.
    """
    if path.is_dir():
        raise UserError(f"{path}: expected a file, found a folder; name a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.unfinished")
    try:
        yield unfinished
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_text_atomically(path: Path, text: str) -> None:
    """Write `text` to `path` in UTF-8, completely or not at all."""
    with atomic_file(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


@dataclass(frozen=True)
class StagingArea:
    """Folders to work in: `result` becomes the requested folder, `scratch` is deleted."""

    result: Path
    scratch: Path


@contextmanager
def atomic_folder(out: Path) -> Iterator[StagingArea]:
    """Yield a staging area beside `out`; its `result` replaces `out` if the block succeeds.

    Missing parent folders are created. If the block raises or is interrupted, everything new is removed and `out` is
    unchanged.
    """
    out = out.resolve()
    missing_parents = [parent for parent in out.parents if not parent.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    stage = StagingArea(folder / "result", folder / "scratch")
    replaced = folder / "replaced"
    try:
        stage.result.mkdir()
        stage.scratch.mkdir()
        yield stage
        if out.exists():
            out.rename(replaced)
        stage.result.rename(out)
    except BaseException:
        if replaced.exists() and not out.exists():
            replaced.rename(out)
        shutil.rmtree(folder)
        with suppress(OSError):  # another process may have written to a parent folder in the meantime
            for parent in missing_parents:
                parent.rmdir()
        raise
    shutil.rmtree(folder)
