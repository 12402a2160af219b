"""The `relumt` command. A subcommand's module is imported only when it runs; `relumt.commands` says what is in it."""

import importlib
import inspect
from collections.abc import Sequence

from relumt import __version__
from relumt.errors import UserError
from relumt.installation import find_extra
from relumt.process import ArgumentParser, command_line

COMMANDS = {
    "doctor": ("runs", "check the installation, the machine and the GPU kernels"),
    "models": ("models", "list mechanisms, feed-forward layers and configured models, with their flags"),
    "user-dir": ("runs", "print the folder to pass to fairseq's --user-dir"),
    "synth": ("corpora", "write a generated German-English corpus"),
    "prepare": ("corpora", "turn a bitext into a fairseq data-bin"),
    "corpus": ("corpora", "turn one of the papers' corpora into a data-bin"),
    "run": ("runs", "train, translate and analyze a run (used by scripts/)"),
    "average": ("runs", "average the parameters of checkpoints"),
    "translate": ("translation", "translate the lines of standard input with a trained model"),
    "export": ("runs", "write a trained model for other programs"),
    "analyze": ("analysis", "measure what trained models do on a test set"),
    "attend": ("analysis", "show the attention of a model that translates a sentence"),
    "filter": ("analysis", "rank sentence pairs by null attention and keep the best"),
    "score": ("runs", "score a run with another program, such as a neural metric"),
    "score-documents": ("runs", "score translated documents with d-BLEU and s-BLEU"),
    "contrast": ("analysis", "measure the accuracy on contrastive pronoun examples"),
    "import-contrast": ("corpora", "turn ContraPro and similar test sets into contrastive examples"),
    "grid": ("grid", "run all experiments of a paper's table"),
    "reproduce": ("papers", "make the runs of a paper's table and print it"),
    "table": ("papers", "print the results of finished runs as a table"),
}
"""Name of each subcommand → its module in `relumt.commands`, and its line in `relumt --help`."""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the subcommand named by `argv`, or by the command line; exit with status 2, 1 or 128 + N on errors.

    `relumt.errors` explains 1 and 2, `relumt.process` explains 128 + N.
    """
    with command_line():
        run_command(argv)


def run_command(argv: Sequence[str] | None) -> None:
    """Parse the command line and run the subcommand.

    Raises:
        UserError: the command line is invalid, or a package of one of relumt's extras is missing.
    """
    parser = ArgumentParser(prog="relumt", description="Attention without softmax for translation.")
    parser.add_argument("--version", action="version", version=f"relumt {__version__}")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, (_, help_line) in COMMANDS.items():
        subparsers.add_parser(name, help=help_line, add_help=False)
    known, rest = parser.parse_known_args(argv)
    try:
        run_subcommand(known.command, rest)
    except ModuleNotFoundError as error:
        if not (error.name and (extra := find_extra(error.name))):
            raise
        needs = f"relumt {known.command} needs {error.name}"
        raise UserError(f"{needs}, which is not installed; run pip install 'relumt[{extra}]'") from None


def run_subcommand(command: str, rest: Sequence[str]) -> None:
    """Parse the arguments of a subcommand and run it."""
    module = importlib.import_module(f"relumt.commands.{COMMANDS[command][0]}")
    name = command.replace("-", "_")
    run, add_arguments = getattr(module, name), getattr(module, f"add_{name}_arguments", None)
    command_parser = ArgumentParser(prog=f"relumt {command}", description=inspect.getdoc(run), allow_abbrev=False)
    if add_arguments:
        add_arguments(command_parser)
    run(command_parser.parse_args(rest))


if __name__ == "__main__":
    main()
