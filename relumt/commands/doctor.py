"""Check the installation, the machine and, if there is a GPU, every kernel of attention.

With a GPU this compiles all kernels, which takes minutes; each runs in a process that it may crash. Nothing is
downloaded. The exit status is 1 if something that training needs is broken.
"""

import argparse

from relumt.doctor.report import report_machine


def add_arguments(_: argparse.ArgumentParser) -> None:
    """Add no arguments: the command has none."""


def run(_: argparse.Namespace) -> None:
    """Print the report."""
    report_machine()
