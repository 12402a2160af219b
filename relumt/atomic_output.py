"""A folder that appears complete or not at all."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Stage:
    """Where to build: `result` becomes the folder asked for, `scratch` is thrown away."""

    result: Path
    scratch: Path


@contextmanager
def staged(out: Path) -> Iterator[Stage]:
    """Build a folder beside `out`; put it in `out`'s place, replacing it, when the block ends well.

    If the block raises, or is interrupted, everything is removed and `out` is as before.
    """
    out = out.resolve()
    missing_parents = [parent for parent in out.parents if not parent.exists()]
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
    stage = Stage(folder / "result", folder / "scratch")
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
        with suppress(OSError):  # another run may have put something there since
            for parent in missing_parents:
                parent.rmdir()
        raise
    shutil.rmtree(folder)
