"""The state of the git checkout that a package is imported from."""

import hashlib
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Revision:
    """The state of a package's checkout; all fields are empty if the package is not imported from a checkout.

    Attributes:
        commit: the commit's hash.
        code: the hash of the package's tree in that commit; equal for commits that differ in other files only.
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
    """Return a hash of twelve hexadecimal digits over all that differs from HEAD in `package`, with untracked files.

    Empty if nothing differs.
    """
    untracked = (git(package, "ls-files", "--others", "--exclude-standard", "-z", "--", ".") or b"").split(b"\0")
    changes = git(package, "diff", "HEAD", "--", ".") or b""
    for name in sorted(filter(None, untracked)):
        path = package / os.fsdecode(name)
        changes += name + b"\0" + (path.read_bytes() if path.is_file() else b"")
    return hashlib.sha256(changes).hexdigest()[:12] if changes else ""


def git(folder: Path, *arguments: str) -> bytes | None:
    """Return the output of a git command in `folder`, None if git is missing or the command fails."""
    try:
        result = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None
