import subprocess

import pytest
import torch

import relumt
from relumt.errors import UserError
from relumt.runs import environment
from relumt.runs.environment import Revision, find_device, revision, versions


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own in which relumt pretends to be."""
    package = tmp_path / "relumt"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "notes").write_text("")
    monkeypatch.setattr(relumt, "__file__", str(package / "__init__.py"))
    for command in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm first"):
        subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
    return tmp_path


def test_revision_of_a_clean_checkout(checkout):
    assert len(revision().commit) == 40
    assert revision().dirty == ""


def test_a_commit_outside_the_package_does_not_change_the_code(checkout):
    before = revision()
    (checkout / "notes").write_text("new")
    commit = "-c user.name=a -c user.email=a@b commit -qam second"
    subprocess.run(["git", *commit.split()], cwd=checkout, check=True)
    assert revision().commit != before.commit
    assert revision().code == before.code != ""


def test_only_changes_of_the_package_count(checkout):
    (checkout / "notes").write_text("new")
    assert revision().dirty == ""
    (checkout / "relumt" / "__init__.py").write_text("1")
    changed = revision().dirty
    (checkout / "relumt" / "new.py").write_text("1")
    added = revision().dirty
    (checkout / "relumt" / "new.py").write_text("2")
    assert len({"", changed, added, revision().dirty}) == 4


def test_a_package_installed_inside_another_repository_has_no_revision(checkout, monkeypatch):
    installed = checkout / "site-packages" / "relumt"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(relumt, "__file__", str(installed / "__init__.py"))
    assert revision() == Revision()


def test_without_git_there_is_no_revision(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert revision() == Revision()


@pytest.mark.parametrize("build", ["2.13.0+cpu", "2.13.0"])
def test_a_cpu_trains_in_fp32(monkeypatch, build):
    monkeypatch.setattr(environment, "version", lambda _: build)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    device = find_device(None)
    assert (device.kind, device.precision, device.train_flags()) == ("cpu", "fp32", ["--cpu"])
    with pytest.raises(UserError, match="PRECISION=bf16 needs a GPU"):
        find_device("bf16")


@pytest.mark.parametrize(("asked", "flags"), [(None, ["--fp16"]), ("bf16", ["--bf16"]), ("fp32", [])])
def test_a_gpu_trains_in_fp16_by_default(monkeypatch, asked, flags):
    monkeypatch.setattr(environment, "version", lambda _: "2.13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    device = find_device(asked)
    assert device.train_flags() == flags
    assert str(device).startswith("2 × a GPU (cuda, ")


def test_versions_include_the_package_of_fairseq():
    assert versions()["fairseq"].startswith("fairseq")
    assert versions()["torch"] == torch.__version__


def test_missing_fairseq_is_reported(monkeypatch):
    monkeypatch.setattr(environment, "FAIRSEQ_PACKAGES", ("no-such-package",))
    with pytest.raises(UserError, match="fairseq is not installed"):
        environment.fairseq_version()
