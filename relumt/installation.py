"""Which code runs: the revision of a package's git checkout, and the fairseq that Python imports.

Several distributions provide the module `fairseq`, and a checkout or PYTHONPATH can shadow all of them. So its version
is read from the folder that Python imports. Nothing here imports fairseq, because an untested one may fail on import:
fairseq 0.12.2 does from Python 3.11 on. relumt refuses untested versions.
"""

import hashlib
import logging
import os
import re
import subprocess
import warnings
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from importlib.util import find_spec
from pathlib import Path

from relumt.errors import UserError

SUPPORTED_VERSIONS = ("0.12.3.1",)
"""Values of `fairseq.__version__` with which all tests pass."""

SETTING = "RELUMT_FAIRSEQ"
"""Environment variable: "any" lets relumt use a fairseq that it was not tested with."""

HOW_TO_INSTALL = "pip install 'relumt[fairseq]'"

VERSION = re.compile(r"\d[^\s\"']+")
"""The version in the package's file version.py or version.txt."""


def find_extra(module: str) -> str:
    """Return the extra of relumt that installs a module, "" if none does."""
    package = re.escape(module.partition(".")[0].replace("_", "-"))
    listed = re.compile(rf"{package}\b.*; extra == ['\"](\w+)", re.IGNORECASE)
    try:
        return next((found[1] for text in requires("relumt") or [] if (found := listed.match(text))), "")
    except PackageNotFoundError:
        return ""


@dataclass(frozen=True)
class Revision:
    """The state of a package's code.

    Attributes:
        commit: the hash of the checkout's commit, empty if git knows none.
        code: the hash of the package's Python files, the same in a checkout, an archive and an installed package.
        dirty: its first digits if the checkout has uncommitted changes, else empty.
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
    """Return the revision of a package.

    Args:
        package: the folder with the package's `__init__.py`.
    """
    package = package.resolve()
    code = hash_python_files(package)
    if not git(package, "ls-files", "--", "__init__.py"):
        return Revision(code=code)
    commit = (git(package, "rev-parse", "--verify", "-q", "HEAD") or "").strip()
    changed = git(package, "status", "--porcelain", "--untracked-files=all", "--", ":(glob)**/*.py")
    return Revision(commit, code, code[:12] if changed else "")


def hash_python_files(package: Path) -> str:
    """Return the SHA-256 of the names and contents of a package's Python files, hidden ones excepted."""
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        name = path.relative_to(package)
        if not any(part.startswith(".") for part in name.parts):
            content = path.read_bytes()
            digest.update(b"%b\0%d\0%b" % (name.as_posix().encode(), len(content), content))
    return digest.hexdigest()


def git(folder: Path, *arguments: str) -> str | None:
    """Return the output of a git command in `folder`, None if git is missing or the command fails."""
    command = ["git", "-C", str(folder), *arguments]
    try:
        result = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    except FileNotFoundError:
        return None
    return result.stdout if result.returncode == 0 else None


def prepare_fairseq_import() -> None:
    """Refuse an untested fairseq, and silence what fairseq and torch log while they load; call this before the import.

    One of fairseq's modules configures the root logger at level DEBUG on import, unless it is already configured.

    Raises:
        UserError: fairseq is missing or of a version that relumt was not tested with.
    """
    require_supported_fairseq()
    logging.basicConfig(level=logging.WARNING)
    logging.getLogger("fairseq").setLevel(logging.WARNING)
    logging.getLogger("relumt").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", message=".*pin_memory")


def require_supported_fairseq() -> None:
    """Check that fairseq can be found and that its version is supported.

    Raises:
        UserError: it is missing, or of another version and RELUMT_FAIRSEQ is not "any".
    """
    path = find_fairseq()
    version = read_version(path)
    if version not in SUPPORTED_VERSIONS and os.environ.get(SETTING) != "any":
        raise UserError(
            f"expected fairseq {' or '.join(SUPPORTED_VERSIONS)}, found {version or 'an unknown version'} in {path}; "
            f"run {HOW_TO_INSTALL}, in an environment without another fairseq, or set {SETTING}=any to try this one"
        )


def find_fairseq() -> Path:
    """Return the folder of the fairseq that is imported, or that would be; raise UserError if there is none."""
    spec = find_spec("fairseq")
    if spec is None or spec.origin is None:  # the second: a folder that an uninstallation left behind
        raise UserError(f"fairseq is not installed; run {HOW_TO_INSTALL}")
    return Path(spec.origin).resolve().parent


def read_version(path: Path) -> str:
    """Return the version that a folder of fairseq states, as fairseq reads it; "" if it states none."""
    for file in (path / "version.py", path / "version.txt"):
        if file.is_file() and (found := VERSION.search(file.read_text(encoding="utf-8", errors="replace"))):
            return found[0]
    return ""


def describe_fairseq() -> str:
    """Name everything about the imported fairseq that results may depend on; raise UserError if there is none.

    That is the version and, in a git checkout, the commit and a hash of the uncommitted changes. Outside of one, a
    supported version is that of the package fairseq-fixed.
    """
    path = find_fairseq()
    version, revision = read_version(path), find_revision(path)
    package = "fairseq-fixed" if version in SUPPORTED_VERSIONS and not revision.commit else "fairseq"
    commit = f", commit {revision.commit}" if revision.commit else ""
    changes = f" with uncommitted changes {revision.dirty}" if revision.dirty else ""
    return f"{package} {version or 'of unknown version'}{commit}{changes}"
