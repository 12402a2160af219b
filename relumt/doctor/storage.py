"""Checks of folders: free space, and whether files can be written."""

import os
import shutil
import tempfile
from pathlib import Path

from relumt.doctor.check import Check, Status
from relumt.files import nearest_existing

GIB = 2**30
LITTLE_SPACE, TOO_LITTLE_SPACE = 10 * GIB, GIB
"""A checkpoint of a base model takes about 1 GiB with the state of Adam, and a run keeps several."""
CACHE_SPACE = GIB


def check_working_directory() -> Check:
    """Check that runs can be written to the current directory."""
    folder = Path.cwd()
    free = shutil.disk_usage(folder).free
    status: Status = "error" if free < TOO_LITTLE_SPACE else "warning" if free < LITTLE_SPACE else "ok"
    advice = "" if status == "ok" else "free some disk space, or set RUNS to a folder on another disk"
    if problem := _write_error(folder):
        return Check("working directory", "error", f"{folder}: {problem}", "change to another folder")
    return Check("working directory", status, f"{folder}, {describe_size(free)} free", advice)


def check_relumt_cache() -> Check:
    """Check the folder in which relumt remembers which kernels work."""
    from relumt.attention.kernels.verdict_cache import cache_folder

    return _check_cache("relumt's cache", cache_folder(), "RELUMT_CACHE")


def check_triton_cache() -> Check:
    """Check the folder in which Triton keeps compiled kernels, and from which it loads them."""
    try:
        from triton import knobs
    except Exception:  # another check says so
        return Check("Triton's cache", "ok", "not checked: no Triton")
    return _check_cache("Triton's cache", Path(knobs.cache.dir), "TRITON_CACHE_DIR")


def _check_cache(name: str, folder: Path, variable: str) -> Check:
    """Check a folder that need not exist yet, which the environment variable can move."""
    advice = f"set {variable} to a folder on another disk"
    existing = nearest_existing(folder)
    if problem := _write_error(existing):
        return Check(name, "warning", f"{folder}: {problem}", advice)
    if os.statvfs(existing).f_flag & os.ST_NOEXEC:
        return Check(name, "warning", f"{folder}: mounted noexec, so compiled code cannot be loaded from it", advice)
    free = shutil.disk_usage(existing).free
    if free < CACHE_SPACE:
        return Check(
            name, "warning", f"{folder}: only {describe_size(free)} free", f"free some disk space, or {advice}"
        )
    return Check(name, "ok", f"{folder}, {describe_size(free)} free")


def _write_error(folder: Path) -> str:
    """Return why no file can be written to a folder, "" if one can."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"0")
    except OSError as error:
        return f"not writable ({error.strerror})"
    return ""


def describe_size(size: int) -> str:
    """Return a number of bytes in GiB."""
    return f"{size / GIB:,.1f} GiB"
