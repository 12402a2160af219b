"""Print the folder to give to fairseq's --user-dir, wherever relumt is installed."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command takes no arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the absolute path of the package."""
    print(Path(__file__).resolve().parents[1])
