"""Checks of Python and of packages."""

import platform
import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import relumt
from relumt.doctor.check import Check, ChildFailedError, run_python
from relumt.errors import UserError
from relumt.fairseq_version import (
    HOW_TO_INSTALL,
    SUPPORTED_VERSIONS,
    describe_fairseq,
    find_distributions,
    require_supported_fairseq,
)
from relumt.runs.environment import describe_revision, installed_version

OLDEST_PYTHON = (3, 11)

INSTALL = "install it again, as the README says"

REGISTER_WITH_FAIRSEQ = """
import contextlib, os
with contextlib.redirect_stdout(open(os.devnull, "w")):
    from relumt.fairseq_version import prepare_fairseq_import
    prepare_fairseq_import()
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
    """Check which fairseq is imported and from where, that it is supported, and that relumt registers with it."""
    try:
        found = describe_fairseq()
        require_supported_fairseq()
    except UserError as error:
        return Check("fairseq", "error", str(error))
    detail = f"{found}, imported from {found.path}"
    if " and " in found.distribution:
        advice = f"uninstall both, then run {HOW_TO_INSTALL}"
        return Check("fairseq", "error", f"{detail}: they overwrite each other's files", advice)
    try:
        run_python(REGISTER_WITH_FAIRSEQ)
    except ChildFailedError as error:
        return Check("fairseq", "error", f"{detail}, cannot be imported with relumt: {error}", f"run {HOW_TO_INSTALL}")
    if shadowed := sorted({package.name for package in find_distributions()} - {found.distribution}):
        detail += f", not from {' or '.join(shadowed)}"
        return Check("fairseq", "warning", detail, "unset PYTHONPATH, or uninstall what you do not use")
    if found.version not in SUPPORTED_VERSIONS:
        return Check("fairseq", "warning", f"{detail}: relumt was not tested with it", f"run {HOW_TO_INSTALL}")
    return Check("fairseq", "ok", detail)


def check_sacrebleu() -> Check:
    """Check that sacreBLEU scores, with the metrics that relumt uses."""
    from sacrebleu.metrics import BLEU, CHRF

    lines = ["a cat sat on the mat"]
    scores = [metric.corpus_score(lines, [lines]).score for metric in (BLEU(), CHRF())]
    detail = f"{installed_version('sacrebleu')}"
    if min(scores) < 99.9:
        return Check("sacreBLEU", "error", f"{detail} scores a text against itself with {min(scores):.1f}", INSTALL)
    return Check("sacreBLEU", "ok", detail)
