"""Which fairseq is found, described and refused."""

import importlib.metadata
import sys
from pathlib import Path

import pytest

import relumt
from relumt.errors import UserError
from relumt.installation import (
    HOW_TO_INSTALL,
    SUPPORTED_VERSIONS,
    describe_fairseq,
    find_revision,
    require_supported_fairseq,
)
from tests.fairseq_cases import commit_all, write_fairseq

(SUPPORTED,) = SUPPORTED_VERSIONS


@pytest.fixture
def site(monkeypatch, tmp_path):
    """A folder of packages that is searched in place of all others, while fairseq is not loaded."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.delitem(sys.modules, "fairseq", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder)])
    monkeypatch.delenv("RELUMT_FAIRSEQ", raising=False)
    return folder


def test_version_py_wins_as_in_fairseq(site):
    package = write_fairseq(site, "0.12.2")
    (package / "version.py").write_text(f'__version__ = "{SUPPORTED}"\n')
    require_supported_fairseq()


def test_a_fairseq_is_described_with_its_version_and_the_commit_of_its_checkout(site, tmp_path):
    write_fairseq(site, SUPPORTED)
    assert describe_fairseq() == f"fairseq-fixed {SUPPORTED}"
    package = write_fairseq(tmp_path / "my fork", SUPPORTED)
    sys.path.insert(0, str(tmp_path / "my fork"))
    commit = commit_all(tmp_path / "my fork")
    assert describe_fairseq() == f"fairseq {SUPPORTED}, commit {commit}"
    (package / "trainer.py").write_text("1")
    dirty = find_revision(package).dirty
    assert len(dirty) == 12
    assert describe_fairseq() == f"fairseq {SUPPORTED}, commit {commit} with uncommitted changes {dirty}"


@pytest.mark.parametrize(("version", "named"), [("0.12.2", "0.12.2"), ("", "an unknown version")])
def test_an_untested_version_is_refused(site, monkeypatch, version, named):
    package = write_fairseq(site, version)
    with pytest.raises(UserError) as refused:
        require_supported_fairseq()
    message = str(refused.value)
    assert message.startswith(f"expected fairseq {SUPPORTED}, found {named} in {package}; run ")
    assert HOW_TO_INSTALL in message and "RELUMT_FAIRSEQ=any" in message and "\n" not in message
    monkeypatch.setenv("RELUMT_FAIRSEQ", "any")
    require_supported_fairseq()


def test_missing_and_damaged_packages_are_refused(site):
    for _ in range(2):
        with pytest.raises(UserError, match=r"^fairseq is not installed; run "):
            require_supported_fairseq()
        (site / "fairseq").mkdir(exist_ok=True)  # what an uninstallation can leave behind


def test_the_extra_installs_the_supported_version():
    assert importlib.metadata.version("fairseq-fixed") == SUPPORTED
    setup = (Path(relumt.__file__).parents[1] / "setup.py").read_text(encoding="utf-8")
    required, _, extras = setup.partition("extras_require")
    assert f'"fairseq": ["fairseq-fixed=={SUPPORTED}", ' in extras and "fairseq-fixed" not in required
