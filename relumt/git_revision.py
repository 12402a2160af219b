"""The state of the git checkout that a package is imported from."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Revision:
    """The state of a package's code.

    Attributes:
        commit: the hash of the checkout's commit, empty if git knows none.
        code: the hash of the package's tree in that commit, equal for commits that differ in other files only; without
            a commit, what the caller knows of the code.
        dirty: hash of the uncommitted changes to the package, empty if there are none.
    """

    commit: str = ""
    code: str = ""
    dirty: str = ""

    def describe(self, version: str) -> str:
        """Return the commit, or the version of relumt if it is not run from a checkout."""
        if not self.commit:
            return f"relumt {version}"
        return f"revision {self.commit[:7]}{' with uncommitted changes' if self.dirty else ''}"


def find_revision(package: Path) -> Revision:
    """Return the revision of the checkout that tracks a package; empty if none does, as for an installed package.

    Args:
        package: the folder with the package's `__init__.py`.
    """
    package = package.resolve()
    if not git(package, "ls-files", "--", "__init__.py"):
        return Revision()
    commit, code = (
        (git(package, "rev-parse", "--verify", "-q", name) or b"").decode().strip() for name in ("HEAD", "HEAD:./")
    )
    return Revision(commit, code, hash_uncommitted_changes(package))


def hash_uncommitted_changes(package: Path) -> str:
    """Return a hash of twelve hexadecimal digits over the files in `package` that differ from HEAD or are untracked.

    Hidden files, such as those of an open editor, do not count. Only names and contents do, so that the user's settings
    of `git diff` have no effect. Empty if nothing differs.
    """
    untracked = git(package, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or b""
    changed = git(package, "diff", "--name-only", "--no-renames", "--relative", "-z", "HEAD", "--", ".") or b""
    names = {name for name in (changed + untracked).split(b"\0") if name and not _is_hidden(os.fsdecode(name))}
    return _hash_contents(package, names)[:12] if names else ""


def hash_files(package: Path) -> str:
    """Return the SHA-256 of a package's files, without hidden and compiled ones."""
    paths = (path.relative_to(package) for path in package.rglob("*") if path.is_file())
    kept = (path for path in paths if "__pycache__" not in path.parts and not _is_hidden(str(path)))
    return _hash_contents(package, {os.fsencode(path) for path in kept})


def _is_hidden(name: str) -> bool:
    """Return whether a file is hidden, or in a hidden folder."""
    return any(part.startswith(".") for part in Path(name).parts)


def _hash_contents(folder: Path, names: set[bytes]) -> str:
    """Return a SHA-256 over the names and contents of files; those that are missing count as empty."""
    digest = hashlib.sha256()
    for name in sorted(names):
        path = folder / os.fsdecode(name)
        content = path.read_bytes() if path.is_file() else b""
        digest.update(b"%b\0%d\0%b" % (name, len(content), content))
    return digest.hexdigest()


def git(folder: Path, *arguments: str) -> bytes | None:
    """Return the output of a git command in `folder`, None if git is missing or the command fails."""
    try:
        result = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None
