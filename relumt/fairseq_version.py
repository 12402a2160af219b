"""Which fairseq Python imports: its folder, version, distribution and commit; relumt refuses untested versions.

Several distributions provide the module `fairseq`, and a checkout or PYTHONPATH can shadow all of them. So everything
here follows from the folder that Python imports. Nothing imports fairseq, because an untested one may fail on import:
fairseq 0.12.2 does from Python 3.11 on.
"""

import json
import os
import re
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import unquote, urlsplit

from relumt.console import quiet_fairseq
from relumt.errors import UserError
from relumt.git_revision import find_revision

SUPPORTED_VERSIONS = ("0.12.3.1",)
"""Values of `fairseq.__version__` with which all tests pass."""

SETTING = "RELUMT_FAIRSEQ"
"""Environment variable: "any" lets relumt use a fairseq that it was not tested with."""

HOW_TO_INSTALL = "PIP_CONSTRAINT=constraints.txt pip install '.[fairseq]' in relumt's checkout"

VERSION = re.compile(r"\d[^\s\"']+")
"""The version in the package's file version.py or version.txt."""


@dataclass(frozen=True)
class FairseqSource:
    """The fairseq that Python imports.

    Attributes:
        path: the package's folder.
        version: `fairseq.__version__`, "" if it cannot be found.
        distribution: name of the distribution that installed the folder; several joined by " and " if they overwrite
            each other's files, "" if none did, as for a folder on PYTHONPATH.
        commit: the commit of the git checkout that the folder is in; "" if it is in none.
        dirty: hash of the package's uncommitted changes, "" if there are none.
    """

    path: str
    version: str
    distribution: str = ""
    commit: str = ""
    dirty: str = ""

    def __str__(self) -> str:
        """Name everything that results may depend on: not the folder."""
        commit = f", commit {self.commit}" if self.commit else ""
        changes = f" with uncommitted changes {self.dirty}" if self.dirty else ""
        return f"{self.distribution or 'fairseq'} {self.version or 'of unknown version'}{commit}{changes}"


def prepare_fairseq_import() -> None:
    """Refuse an untested fairseq, and silence what fairseq logs while it loads. Call this before importing fairseq.

    Raises:
        UserError: fairseq is missing or of a version that relumt was not tested with.
    """
    require_supported_fairseq()
    quiet_fairseq()


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


def describe_fairseq() -> FairseqSource:
    """Describe the fairseq that is imported, or that would be; raise UserError if there is none."""
    path, revision = find_fairseq(), find_revision(find_fairseq())
    owners = {found.name for found in find_distributions() if provides(found, path)}
    return FairseqSource(str(path), read_version(path), " and ".join(sorted(owners)), revision.commit, revision.dirty)


def find_distributions() -> list[Distribution]:
    """Return the installed distributions that contain a module `fairseq`."""
    return [found for found in distributions() if "fairseq" in (found.read_text("top_level.txt") or "").split()]


def provides(package: Distribution, path: Path) -> bool:
    """Return whether a distribution installed the folder, or is an editable installation of the checkout it is in."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        return path.is_relative_to(Path(unquote(urlsplit(origin["url"]).path)).resolve())
    return Path(str(package.locate_file("fairseq"))).resolve() == path
