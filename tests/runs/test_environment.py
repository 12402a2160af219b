import platform
import subprocess

import pytest
import torch

import relumt
from relumt.errors import UserError
from relumt.installation import Revision
from relumt.plugin import cpu_products
from relumt.runs import environment
from relumt.runs.environment import (
    Device,
    current_environment,
    find_device,
    revision,
)
from relumt.runs.flags import differences
from tests.fairseq_cases import commit_all


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A checkout of its own in which relumt pretends to be."""
    package = tmp_path / "relumt"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (tmp_path / "notes").write_text("")
    monkeypatch.setattr(relumt, "__file__", str(package / "__init__.py"))
    commit_all(tmp_path)
    return tmp_path


def test_a_commit_outside_the_package_does_not_change_the_code(checkout):
    before = revision()
    assert len(before.commit) == 40 and before.dirty == ""
    (checkout / "notes").write_text("new")
    (checkout / "relumt" / ".__init__.py.swp").write_text("an editor")
    assert revision().dirty == ""
    commit = "-c user.name=a -c user.email=a@b commit -qam second"
    subprocess.run(["git", *commit.split()], cwd=checkout, check=True)
    assert revision().commit != before.commit
    assert revision().code == before.code != ""
    (checkout / "relumt" / "new.py").write_text("")
    untracked = revision().dirty
    (checkout / "relumt" / "__init__.py").write_text("changed")
    assert len({"", untracked, revision().dirty}) == 3


def test_the_code_is_the_same_in_a_checkout_an_archive_and_an_installed_package(checkout, tmp_path, monkeypatch):
    (checkout / "relumt" / "data.json").write_text("{}")  # an installed package may lack files that are not code
    inside = revision()
    copied = tmp_path / "elsewhere" / "relumt"
    copied.mkdir(parents=True)
    (copied / "__init__.py").write_bytes((checkout / "relumt" / "__init__.py").read_bytes())
    monkeypatch.setattr(relumt, "__file__", str(copied / "__init__.py"))
    archive = revision()
    commit_all(copied.parent)
    committed_elsewhere = revision()
    assert inside.code == archive.code == committed_elsewhere.code
    assert len({inside.commit, archive.commit, committed_elsewhere.commit}) == 3
    (copied / "__init__.py").write_text("a")
    changed = revision()
    (copied / "__init__.py").write_text("b")
    assert len({inside.code, changed.code, revision().code}) == 3


def test_a_package_installed_inside_another_repository_has_no_commit(checkout, monkeypatch):
    installed = checkout / "site-packages" / "relumt"
    installed.mkdir(parents=True)
    (installed / "__init__.py").write_text("")
    monkeypatch.setattr(relumt, "__file__", str(installed / "__init__.py"))
    before = revision()
    assert before == Revision(code=before.code) and len(before.code) == 64
    (installed / "__pycache__").mkdir()
    (installed / "__pycache__" / "x.pyc").write_text("compiled")
    assert revision() == before
    (installed / "module.py").write_text("upgraded")
    assert revision() != before


@pytest.fixture(params=["2.13.0+cpu", "2.13.0"])
def cpu(request, monkeypatch, tmp_path):
    """Pretend to be a CPU with these capabilities, seen by either build of torch, and with accurate products."""
    monkeypatch.setattr(cpu_products, "largest_product_error", lambda: 3e-7)
    monkeypatch.setattr(environment, "version", lambda _: request.param)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(environment, "CPU_INFO", tmp_path / "cpuinfo")

    def pretend(*capabilities):
        (tmp_path / "cpuinfo").write_text(f"flags : fpu {' '.join(capabilities)}")
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(capabilities, True))

    yield pretend
    torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize(
    ("capabilities", "precision", "reason"),
    [
        (["avx2"], "bf16", "PRECISION=bf16 needs a GPU or a CPU with AVX512-BF16 or AMX"),
        (["avx512_f", "avx512_bf16", "amx_bf16"], "fp16", "PRECISION=fp16 needs a GPU"),
    ],
)
def test_a_precision_that_a_cpu_lacks_is_refused(cpu, capabilities, precision, reason):
    cpu(*capabilities)
    with pytest.raises(UserError, match=reason) as refused:
        find_device(precision)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("capabilities", "backend"),
    [(["avx2"], "default"), (["avx512_f"], "onednn"), (["avx512_f", "amx_tile"], "default")],
)
def test_the_backend_of_fp32_products_is_part_of_the_device(cpu, capabilities, backend):
    cpu(*capabilities)
    assert find_device(None).fp32_backend == backend


def test_a_cpu_trains_in_bf16_if_it_is_faster(cpu):
    cpu("avx512_f", "avx512_bf16")
    assert find_device("bf16").train_flags() == ["--cpu", "--cpu-bf16"]
    assert str(find_device("bf16")) == f"{platform.machine()} (cpu, bf16, onednn)"


@pytest.mark.parametrize(("asked", "flags"), [(None, ["--fp16"]), ("bf16", ["--bf16"]), ("fp32", [])])
def test_a_gpu_trains_in_fp16_by_default(monkeypatch, asked, flags):
    monkeypatch.setattr(environment, "version", lambda _: "2.13.0")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "a GPU")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    device = find_device(asked)
    assert device.train_flags() == flags
    assert str(device).startswith("2 × a GPU (cuda, ")


def test_another_fairseq_is_another_environment(monkeypatch):
    device = Device("cpu", "x86_64", 1, "fp32")
    before = current_environment(device)
    monkeypatch.setattr(environment, "describe_fairseq", lambda: "fairseq 0.12.3.1, commit c")
    assert differences(before.facts(), current_environment(device).facts()) == [
        "version fairseq fairseq-fixed 0.12.3.1 (now fairseq 0.12.3.1, commit c)"
    ]
