"""Print the folder to pass to fairseq's --user-dir."""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add nothing: this command takes no arguments."""


def run(arguments: argparse.Namespace) -> None:
    """Print the absolute path of the package."""
    print(Path(__file__).resolve().parents[1])
