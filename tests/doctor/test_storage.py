"""Checks of free space and of the right to write, on disks that lack them."""

import os
import shutil
from collections import namedtuple
from types import SimpleNamespace

import pytest

from relumt.doctor import storage

Usage = namedtuple("Usage", "free")


@pytest.mark.parametrize(("gib", "status"), [(0.5, "error"), (5, "warning"), (50, "ok")])
def test_free_space_of_the_working_directory(monkeypatch, gib, status):
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(gib * storage.GIB))
    found = storage.check_working_directory()
    assert found.status == status and f"{gib:.1f} GiB free" in found.detail


def test_a_working_directory_that_is_not_writable_is_an_error(monkeypatch):
    monkeypatch.chdir("/proc")
    found = storage.check_working_directory()
    assert found.status == "error" and "/proc: not writable" in found.detail


def test_a_cache_that_is_not_writable_is_a_warning(monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path / "file" / "cache"))
    found = storage.check_relumt_cache()
    assert found.status == "warning" and "not writable" in found.detail and "RELUMT_CACHE" in found.advice
    assert found.detail.startswith(str(tmp_path / "file" / "cache"))


def test_a_cache_below_a_folder_that_must_not_be_entered_is_a_warning(monkeypatch, tmp_path):
    """That is so with HOME=/root and another user. Path.exists raises PermissionError, os.path.exists does not."""

    def exists(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(type(tmp_path), "exists", exists)
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path / "cache"))
    assert storage.check_relumt_cache().status in ("ok", "warning")


def test_caches_need_space_and_the_right_to_execute(monkeypatch, tmp_path):
    monkeypatch.setenv("RELUMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0.5 * storage.GIB))
    assert "only 0.5 GiB free" in storage.check_relumt_cache().detail
    monkeypatch.setattr(os, "statvfs", lambda folder: SimpleNamespace(f_flag=os.ST_NOEXEC))
    found = storage.check_relumt_cache()
    assert found.status == "warning" and "mounted noexec" in found.detail
    assert not (tmp_path / "cache").exists()
