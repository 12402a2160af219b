"""Check the installation, the machine and, if there is a GPU, every kernel of attention.

With a GPU this compiles and times all kernels, which takes minutes; each runs in a process that it may crash. Nothing
is downloaded. The exit status is 1 if something that training needs is broken.
"""

import argparse

from relumt.doctor.report import report_machine
from relumt.doctor.tuning import tune_gpus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the option that searches block sizes instead."""
    parser.add_argument(
        "--tune",
        action="store_true",
        help="search the kernels' fastest block sizes on this GPU and remember them",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the report, or search block sizes."""
    if arguments.tune:
        tune_gpus()
    else:
        report_machine()
