"""The `relumt` command: one sub-command a module, imported only when it is asked for.

A sub-command's module offers `add_arguments(parser)` and `run(arguments)`; its docstring's first line is
its help. Importing lazily keeps `relumt user-dir` instant: torch and fairseq take seconds to load.
"""

import argparse
import importlib
from collections.abc import Sequence
from dataclasses import dataclass

from relumt.errors import exit_on_user_error


@dataclass(frozen=True)
class Command:
    """A sub-command: the module that implements it and the line that `relumt --help` shows."""

    module: str
    help: str


COMMANDS = {
    "user-dir": Command("relumt.commands.user_dir", "print the folder to give to fairseq's --user-dir"),
    "synth": Command("relumt.commands.synth", "write the generated German-English corpus"),
    "prepare": Command("relumt.commands.prepare", "turn a bitext into a fairseq data-bin"),
    "corpus": Command("relumt.commands.corpus", "turn a corpus of the papers into a data-bin"),
    "run-record": Command("relumt.commands.run_record", "write and check run.json (used by scripts/)"),
    "average": Command("relumt.checkpoint_averaging", "average the parameters of checkpoints"),
    "analyze": Command("relumt.commands.analyze", "measure what trained models do on a test set"),
    "filter": Command("relumt.commands.filter", "rank sentence pairs by null attention and keep the best"),
    "score-documents": Command("relumt.commands.score_documents", "BLEU of translated documents, d-BLEU and s-BLEU"),
    "contrast": Command("relumt.commands.contrast", "contrastive accuracy on pronouns of documents"),
    "grid": Command("relumt.commands.grid", "make the runs of a paper's table, side by side"),
    "reproduce": Command("relumt.commands.reproduce", "make the runs of a paper's table and print it"),
    "table": Command("relumt.commands.table", "print the finished runs as a table"),
}


INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the sub-command that `argv` (default: the command line) names; exit 2 on a user's error."""
    parser = argparse.ArgumentParser(prog="relumt", description="Attention without softmax for translation.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, command in COMMANDS.items():
        subparsers.add_parser(name, help=command.help, add_help=False)
    known, rest = parser.parse_known_args(argv)
    module = importlib.import_module(COMMANDS[known.command].module)
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
