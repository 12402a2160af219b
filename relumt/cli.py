"""The `relumt` command.

Each subcommand is a module of `relumt.commands` with `add_arguments(parser)` and `run(arguments)`; its docstring is the
description in `--help`. Modules are imported only when their subcommand runs: torch and fairseq take seconds to load.
"""

import argparse
import importlib
from collections.abc import Sequence

from relumt.errors import exit_on_user_error

COMMANDS = {
    "user-dir": "print the folder to pass to fairseq's --user-dir",
    "synth": "write the synthetic German-English corpus",
    "prepare": "turn a bitext into a fairseq data-bin",
    "corpus": "turn one of the papers' corpora into a data-bin",
    "run-record": "write and check run.json (used by scripts/)",
    "average": "average the parameters of checkpoints",
    "analyze": "measure what trained models do on a test set",
    "filter": "rank sentence pairs by null attention and keep the best",
    "score-documents": "score translated documents with d-BLEU and s-BLEU",
    "contrast": "measure the accuracy on contrastive pronoun examples",
    "grid": "run all experiments of a paper's table",
    "reproduce": "make the runs of a paper's table and print it",
    "table": "print the results of finished runs as a table",
}
"""Name of each subcommand → its line in `relumt --help`."""

INTERRUPTED = 130
"""Exit status after Ctrl-C, by the convention of shells."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand named by `argv`, or by the command line; exit with status 2 on a user's error."""
    parser = argparse.ArgumentParser(prog="relumt", description="Attention without softmax for translation.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, help_line in COMMANDS.items():
        subparsers.add_parser(name, help=help_line, add_help=False)
    known, rest = parser.parse_known_args(argv)
    module = importlib.import_module(f"relumt.commands.{known.command.replace('-', '_')}")
    command_parser = argparse.ArgumentParser(
        prog=f"relumt {known.command}", description=module.__doc__, allow_abbrev=False
    )
    module.add_arguments(command_parser)
    try:
        with exit_on_user_error():
            module.run(command_parser.parse_args(rest))
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


if __name__ == "__main__":
    main()
