"""Checks of Python and of packages."""

import json
import platform
import sys
from importlib.metadata import Distribution, PackageNotFoundError, distribution, requires
from pathlib import Path

import relumt
from relumt.doctor.check import Check, ChildFailedError, run_python
from relumt.runs.environment import FAIRSEQ_PACKAGES, describe_revision, installed_version

OLDEST_PYTHON = (3, 11)

INSTALL = "install it again, as the README says"

REGISTER_WITH_FAIRSEQ = """
import contextlib, os
with contextlib.redirect_stdout(open(os.devnull, "w")):
    from relumt.console import quiet_fairseq
    quiet_fairseq()
    import fairseq, fairseq.tasks, relumt
    relumt.register()
print(fairseq.__file__)
"""


def check_relumt() -> Check:
    """Name the version and the revision, and the folder from which it is imported."""
    folder = Path(relumt.__file__).resolve().parent
    return Check("relumt", "ok", f"{relumt.__version__}, {describe_revision()}, in {folder}")


def check_python() -> Check:
    """Check the version of Python."""
    detail = f"{platform.python_version()} ({sys.executable})"
    if sys.version_info < OLDEST_PYTHON:
        return Check("Python", "error", detail, f"install Python {'.'.join(map(str, OLDEST_PYTHON))} or later")
    return Check("Python", "ok", detail)


def check_requirements() -> Check:
    """Check that the packages that relumt requires are installed in versions that it allows."""
    from packaging.requirements import Requirement

    try:
        listed = [Requirement(text) for text in requires("relumt") or []]
    except PackageNotFoundError:
        return Check(
            "packages", "warning", "relumt is not installed, so what it requires is unknown", "run pip install ."
        )
    needed = [requirement for requirement in listed if not requirement.marker or requirement.marker.evaluate()]
    problems = []
    for requirement in needed:
        found = installed_version(requirement.name)
        if found is None and requirement.name in FAIRSEQ_PACKAGES:
            continue  # it has a check of its own, because it is published under two names
        if found is None:
            problems.append(f"{requirement.name} is missing")
        elif not requirement.specifier.contains(found, prereleases=True):
            problems.append(f"{requirement.name} is {found} instead of {requirement.specifier}")
    if problems:
        return Check("packages", "error", ", ".join(problems), "run PIP_CONSTRAINT=constraints.txt pip install .")
    return Check("packages", "ok", "all that relumt requires are installed")


def check_torch() -> Check:
    """Check that torch can be imported; name its version and what it is built for."""
    import torch

    build = "CPU only"
    if torch.version.cuda:
        build = f"CUDA {torch.version.cuda}"
    elif torch.version.hip:
        build = f"ROCm {torch.version.hip}"
    return Check("torch", "ok", f"{torch.__version__}, built for {build}")


def check_triton() -> Check:
    """Check that Triton can be imported; only GPUs need it."""
    import torch

    needed = torch.cuda.is_available()
    if installed_version("triton") is None:
        detail = "not installed: attention uses PyTorch operators"
        return Check("Triton", "warning", detail, INSTALL) if needed else Check("Triton", "ok", detail)
    try:
        import triton
    except Exception as error:  # a broken package may raise anything
        return Check("Triton", "warning", f"cannot be imported ({error}): attention uses PyTorch operators", INSTALL)
    return Check("Triton", "ok", f"{triton.__version__}{'' if needed else ', which only GPUs use'}")


def check_fairseq() -> Check:
    """Check which fairseq is installed and from where it is imported, and that relumt registers with it."""
    installed = [name for name in FAIRSEQ_PACKAGES if installed_version(name)]
    if not installed:
        return Check("fairseq", "error", "not installed", "run pip install 'fairseq-fixed==0.12.3.1'")
    if len(installed) > 1:
        detail = f"{' and '.join(installed)} are both installed and overwrite each other's files"
        return Check("fairseq", "error", detail, "uninstall both, then run pip install 'fairseq-fixed==0.12.3.1'")
    name = f"{installed[0]} {installed_version(installed[0])}"
    try:
        imported_from = Path(run_python(REGISTER_WITH_FAIRSEQ).strip()).parent
    except ChildFailedError as error:
        detail = f"{name}, found in {_find_fairseq()}, cannot be imported with relumt: {error}"
        return Check("fairseq", "error", detail, f"unset PYTHONPATH, or {INSTALL}")
    detail = f"{name}, imported from {imported_from}"
    package = distribution(installed[0])
    expected = Path(str(package.locate_file("fairseq"))).resolve()
    if imported_from.resolve() != expected and not _is_editable(package):
        return Check("fairseq", "warning", f"{detail}, not from {expected}", "unset PYTHONPATH, or remove that folder")
    return Check("fairseq", "ok", detail)


def _find_fairseq() -> str:
    """Return where a child process finds fairseq, without importing it."""
    find = "import importlib.util; print(importlib.util.find_spec('fairseq').origin or 'a folder without __init__.py')"
    try:
        return run_python(find).strip()
    except ChildFailedError:
        return "no folder"


def _is_editable(package: Distribution) -> bool:
    """Return whether a package was installed with `pip install -e`, so that its files are elsewhere."""
    origin = json.loads(package.read_text("direct_url.json") or "{}")
    return bool(origin.get("dir_info", {}).get("editable"))


def check_sacrebleu() -> Check:
    """Check that sacreBLEU scores, with the metrics that relumt uses."""
    from sacrebleu.metrics import BLEU, CHRF

    lines = ["a cat sat on the mat"]
    scores = [metric.corpus_score(lines, [lines]).score for metric in (BLEU(), CHRF())]
    detail = f"{installed_version('sacrebleu')}"
    if min(scores) < 99.9:
        return Check("sacreBLEU", "error", f"{detail} scores a text against itself with {min(scores):.1f}", INSTALL)
    return Check("sacreBLEU", "ok", detail)
