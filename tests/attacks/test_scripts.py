"""The scripts with odd arguments and settings, started twice, and after a script that was killed."""

import os
from pathlib import Path

import pytest

from tests.attacks.attack import ROOT
from tests.runs.cases import write_data_bin

pytestmark = pytest.mark.attack("flags")

RUN_SCRIPTS = ("run.sh", "train.sh", "evaluate.sh", "analyze.sh")
WITHOUT_NAMES = ("scripts/demo.sh", "scripts/smoke.sh", "data_prep/smoke.sh")
OPTION_SCRIPTS = ("data_prep/corpus.sh", "data_prep/prepare.sh")
HELP_POSITIONS = (
    "-h",
    "--help",
    "smoke -h",
    "smoke softmax --help",
    "smoke softmax --lr 1 -h",
    "-h smoke softmax",
    "smoke softmax -- -h",
    "nonsense nonsense --help --nonsense",
)


def require_help(attack, script, arguments, first_line):
    """Run a script with -h somewhere, and check that it prints its usage and creates nothing."""
    ended = attack.process([ROOT / script, *arguments], timeout=60)
    assert ended.status == 0 and ended.stderr == ""
    assert ended.stdout.startswith(first_line)
    assert not any(attack.folder.iterdir())


@pytest.mark.parametrize("arguments", HELP_POSITIONS)
@pytest.mark.parametrize("script", RUN_SCRIPTS)
def test_help_is_printed_in_any_position(attack, script, arguments):
    first_line = (ROOT / "scripts" / script).read_text().splitlines()[1].removeprefix("# ")
    require_help(attack, f"scripts/{script}", arguments.split(), first_line)


@pytest.mark.parametrize("script", WITHOUT_NAMES)
def test_scripts_without_names_have_help(attack, script):
    require_help(attack, script, ["x", "-h"], (ROOT / script).read_text().splitlines()[1].removeprefix("# "))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["-h"], ["--raw", "x", "--help"], ["--raw", "-h"]])
@pytest.mark.parametrize("script", OPTION_SCRIPTS)
def test_scripts_with_options_print_them(attack, script, arguments):
    require_help(attack, script, arguments, (ROOT / script).read_text().splitlines()[1].removeprefix("# "))


@pytest.mark.slow
@pytest.mark.parametrize("arguments", [["-h"], ["rela_table3", "--help"], ["rela_table3", "--", "--lr", "1", "-h"]])
def test_reproduce_lists_its_tables(attack, arguments):
    require_help(attack, "scripts/reproduce.sh", arguments, "Reproduce a table or figure")


@pytest.mark.parametrize("script", ["scripts/demo.sh", "data_prep/smoke.sh"])
def test_arguments_of_scripts_that_take_none_are_refused(attack, script):
    ended = attack.process([ROOT / script, "demo"])
    assert ended.status == 2 and "takes no arguments, found 'demo'" in ended.error


@pytest.mark.parametrize("arguments", [[], ["smoke"]])
@pytest.mark.parametrize("script", RUN_SCRIPTS)
def test_missing_names_are_refused(attack, script, arguments):
    ended = attack.script(script, *arguments)
    assert ended.status == 2 and ended.error.startswith(f"relumt: error: usage: scripts/{script} DATASET MODEL")


@pytest.mark.parametrize("python", ["nowhere/python", "/bin/false", "/dev/null", "python3 -u", "-c"])
def test_a_python_that_cannot_work_is_refused(attack, python):
    ended = attack.script("run.sh", "smoke", "softmax", env={"PYTHON": python})
    assert ended.status == 2 and f"{python} lacks relumt's requirements" in ended.error


@pytest.mark.slow
def test_unknown_tables_are_refused(attack):
    for table in ("-x", "no_such_table", ""):
        assert "no table" in attack.script("smoke.sh", table).error


def test_relative_paths_are_kept_by_smoke(attack):
    """The script changes the folder; docs/results/inhibitor_table3.md sets a relative path."""
    python = attack.folder / "python"
    python.write_text(
        "#!/bin/sh\n"
        'case "$*" in *find_spec*) ;; *" -c "*) echo inhibitor_table3 ;; '
        '*) realpath "$CONFIGS" "$RELUMT_CONCRETE_PYTHON" ;; esac\n'
    )
    python.chmod(0o755)
    (attack.folder / "own").mkdir()
    settings = {"PYTHON": "./python", "CONFIGS": "own", "RELUMT_CONCRETE_PYTHON": "./python"}
    assert attack.script("smoke.sh", env=settings).status == 0
    paths = (attack.folder / "smoke" / "inhibitor_table3.md").read_text().splitlines()
    assert paths == [str(attack.folder / "own"), str(python)]


@pytest.mark.parametrize("name", ["ONE_BY_ONE", "FORCE"])
def test_switches_are_1_or_0(attack, name):
    """/bin/echo prints the command that a Python would run."""
    option = f"--{name.lower().replace('_', '-')}"
    for value, is_on in (("1", True), ("0", False), ("", False)):
        settings = {"PYTHON": "/bin/echo", name: value}
        assert (option in attack.script("run.sh", "smoke", "softmax", env=settings).stdout) == is_on
    for value in ("yes", "true", "01", "a\nb"):
        ended = attack.script("run.sh", "smoke", "softmax", env=settings | {name: value})
        assert ended.status == 2 and f"{name} is " in ended.error and ended.error.endswith("; set it to 1 or 0")


def test_cdpath_changes_nothing(attack):
    script = os.path.relpath(ROOT / "scripts" / "run.sh", ROOT.parent)
    command = ["bash", "-c", f"cd {ROOT.parent} && {script} smoke softmax"]
    settings = {"PYTHON": "/bin/echo", "CDPATH": str(ROOT.parent)}
    assert f" --configs={ROOT}/configs --" in attack.process(command, env=settings).stdout


INVALID = {
    "SEED": ["abc", "-1", "1e3"],
    "RUNS": ["-x", "a\nb", "data-bin/small/dict.de.txt", "/proc/runs"],
    "CONFIGS": ["-x", "nowhere"],
    "DATA_BIN": ["-x", "nowhere", "a\nb"],
    "PRECISION": ["fp8", "fp16 "],
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in INVALID.items() for value in values])
def test_invalid_settings_are_refused(attack, name, value):
    write_data_bin(Path("data-bin/small"))
    ended = attack.script("run.sh", "smoke", "softmax", env={"DATA_BIN": "data-bin/small", name: value})
    assert ended.status == 2
