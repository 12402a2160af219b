"""Compilers that are missing, fail, crash or hang; and the cache of libraries."""

import platform
import shutil

import pytest

from relumt.errors import AttemptFailedError, UserError
from relumt.integer_attention import compiler
from relumt.integer_attention.compiler import INSTRUCTION_SETS, find_compiler, require_x86
from relumt.integer_attention.kernels import Kernels


@pytest.fixture
def fake_compiler(tmp_path, monkeypatch):
    """Return a function that makes CC a shell script, which counts its calls in a file."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def make(build):
        script = tmp_path / "my cc"
        version = '[ "$*" = "-pipe --version" ] && echo "my cc 1.0" && exit'
        script.write_text(f'#!/bin/sh\n{version}\necho call >> "{tmp_path}/calls"\n{build}\n')
        script.chmod(0o755)
        monkeypatch.setenv("CC", f"'{script}' -pipe")
        return find_compiler()

    return make


WRITE_OUTPUT = 'while [ "$1" != -o ]; do shift; done; echo library > "$2"'


def test_without_a_compiler_a_package_is_named(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    with pytest.raises(UserError, match=r"no C compiler: cc, gcc and clang are not on the PATH; .*apt install gcc"):
        find_compiler()


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("no-such-cc -O2", "CC=no-such-cc -O2 is not a program"),
        ("'unclosed", "CC='unclosed: not a command"),
        ("''", "CC='' is not a program"),
        ("/", "CC=/ is not a program"),
        ("false", "false --version failed"),
        ("sh -c true", "sh -c true --version failed"),
    ],
)
def test_a_wrong_cc_is_refused(value, reason, monkeypatch):
    monkeypatch.setenv("CC", value)
    with pytest.raises(UserError, match=reason):
        find_compiler()


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        ("echo 'note: x' >&2; echo \"error: bad value 'x86-64-v3'\" >&2; exit 1", "failed: error: bad value"),
        ("exit 3", "failed: it does not say why"),
        ("kill -SEGV $$", "was killed by SIGSEGV"),
        ("exec sleep 60", "took more than 1 seconds"),
    ],
)
def test_a_compiler_that_fails_is_reported_in_one_line(build, reason, fake_compiler, tmp_path, monkeypatch):
    found = fake_compiler(build)
    monkeypatch.setattr(compiler, "TIME_LIMIT", 1)
    with pytest.raises(AttemptFailedError) as failed:
        found.build(INSTRUCTION_SETS["AVX2"], 16)
    message = str(failed.value)
    assert reason in message and "my cc 1.0" in message and "-march=x86-64-v3; install" in message
    assert "\n" not in message and not list((tmp_path / "cache" / "relumt" / "integer_attention").iterdir())


def test_a_library_is_built_once_for_each_compiler_code_and_flags(fake_compiler, tmp_path, monkeypatch):
    found = fake_compiler(WRITE_OUTPUT)
    first = found.build(INSTRUCTION_SETS["AVX2"], 16)
    assert found.build(INSTRUCTION_SETS["AVX2"], 16) == first and first.read_text() == "library\n"
    others = {found.build(INSTRUCTION_SETS["SSE2"], 16), found.build(INSTRUCTION_SETS["AVX2"], 32)}
    monkeypatch.setattr(compiler, "source_digest", lambda: "changed")
    others.add(found.build(INSTRUCTION_SETS["AVX2"], 16))
    assert len({first, *others}) == 4
    assert (tmp_path / "calls").read_text().count("call") == 4


def test_a_library_that_cannot_be_loaded_is_reported(fake_compiler):
    with pytest.raises(AttemptFailedError, match=r"cannot be loaded .*; delete it"):
        Kernels(fake_compiler(WRITE_OUTPUT), INSTRUCTION_SETS["AVX2"], 16)


def test_other_machines_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(platform, "machine", lambda: "aarch64")
    with pytest.raises(UserError, match=r"Linux on x86-64, found .* on aarch64"):
        require_x86()


def test_instruction_sets_need_what_linux_lists(monkeypatch, tmp_path):
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(compiler, "CPU_INFO", info)
    assert not any(instruction_set.runs_here() for instruction_set in INSTRUCTION_SETS.values())
    features = sorted(INSTRUCTION_SETS["AVX-512"].needs)
    for missing, expected in (("avx512bw", ["SSE2", "AVX2"]), ("bmi2", ["SSE2"]), ("", list(INSTRUCTION_SETS))):
        listed = " ".join(feature for feature in [*features, "sse2"] if feature != missing)
        info.write_text(f"processor\t: 0\nflags\t\t: {listed}\n")
        assert [name for name in INSTRUCTION_SETS if INSTRUCTION_SETS[name].runs_here()] == expected
