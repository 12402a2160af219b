"""The `relumt` command.

Each subcommand is a module of `relumt.commands` with `add_arguments(parser)` and `run(arguments)`; its docstring is the
description in `--help`. Modules are imported only when their subcommand runs: torch and fairseq take seconds to load.
"""

import argparse
import importlib
from collections.abc import Sequence

from relumt.arguments import ArgumentParser
from relumt.process import command_line

COMMANDS = {
    "doctor": "check the installation, the machine and the GPU kernels",
    "user-dir": "print the folder to pass to fairseq's --user-dir",
    "synth": "write a generated German-English corpus",
    "prepare": "turn a bitext into a fairseq data-bin",
    "corpus": "turn one of the papers' corpora into a data-bin",
    "run": "train, translate and analyze a run (used by scripts/)",
    "average": "average the parameters of checkpoints",
    "translate": "translate the lines of standard input with a trained model",
    "export": "write a trained model for other programs",
    "analyze": "measure what trained models do on a test set",
    "attend": "show the attention of a model that translates a sentence",
    "filter": "rank sentence pairs by null attention and keep the best",
    "score": "score a run with another program, such as a neural metric",
    "score-documents": "score translated documents with d-BLEU and s-BLEU",
    "contrast": "measure the accuracy on contrastive pronoun examples",
    "import-contrast": "turn ContraPro and similar test sets into contrastive examples",
    "grid": "run all experiments of a paper's table",
    "reproduce": "make the runs of a paper's table and print it",
    "table": "print the results of finished runs as a table",
}
"""Name of each subcommand → its line in `relumt --help`."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand named by `argv`, or by the command line; exit with status 2, 1 or 128 + N on errors.

    `relumt.errors` explains 1 and 2, `relumt.process` explains 128 + N.
    """
    with command_line():
        run_command(argv)


def run_command(argv: Sequence[str] | None) -> None:
    """Parse the command line and run the subcommand."""
    parser = ArgumentParser(prog="relumt", description="Attention without softmax for translation.")
    parser.add_argument("--version", action=PrintVersion, nargs=0, help="print the version and exit")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        subparsers.add_parser(name, help=help_line, add_help=False)
    known, rest = parser.parse_known_args(argv)
    module = importlib.import_module(f"relumt.commands.{known.command.replace('-', '_')}")
    command_parser = ArgumentParser(prog=f"relumt {known.command}", description=module.__doc__, allow_abbrev=False)
    module.add_arguments(command_parser)
    module.run(command_parser.parse_args(rest))


class PrintVersion(argparse.Action):
    """Prints the version of the installed distribution, and exits; argparse's own action needs it at every start."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object, **__: object) -> None:
        """Print "unknown" for a checkout that is not installed."""
        from relumt.runs.environment import installed_version  # takes tens of milliseconds

        print(f"relumt {installed_version('relumt') or 'unknown'}")
        parser.exit()


if __name__ == "__main__":
    main()
