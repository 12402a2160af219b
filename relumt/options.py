"""The command-line flags of the mechanisms, generated from MECHANISMS, and the mechanism they ask for at a site."""

import argparse
from dataclasses import MISSING, Field
from typing import Any, Literal, get_args, get_origin

from relumt.attention import MECHANISMS, Mechanism
from relumt.errors import UserError

SITES = ("encoder", "decoder", "cross")
"""Encoder self-attention, decoder self-attention, cross-attention."""


def add_attention_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --attention, --attention-SITE and every mechanism's own flags, without defaults.

    Without, because an architecture fills in what the command line leaves open, as in fairseq. Names are checked in
    `build_mechanism`, whose one line argparse would bury under fairseq's four screens of usage.
    """
    known = ", ".join(sorted(MECHANISMS))
    parser.add_argument("--attention", metavar="NAME", help=f"attention at all three sites: {known}")
    for site in SITES:
        parser.add_argument(f"--attention-{site}", metavar="NAME", help=f"attention at the site '{site}'")
    for attribute, (option, mechanisms) in mechanism_options().items():
        add_option(parser, attribute, option, f"of {', '.join(mechanisms)}")


def add_option(parser: argparse.ArgumentParser, attribute: str, option: Field, owner: str) -> None:
    """Add one option of a dataclass as `--attribute-with-dashes`."""
    flag = flag_of(attribute)
    help_line = f"{option.metadata['help']} ({owner}; default: {option.default})"
    if option.type is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=help_line)
    elif get_origin(option.type) is Literal:
        parser.add_argument(flag, choices=get_args(option.type), help=help_line)
    else:
        parser.add_argument(flag, type=option.type, help=help_line)


def flag_of(attribute: str) -> str:
    """The command line's spelling of an attribute: relu_gamma → --relu-gamma."""
    return "--" + attribute.replace("_", "-")


def mechanism_options() -> dict[str, tuple[Field, list[str]]]:
    """Every option by its attribute on the command line, with the names of the mechanisms that have it."""
    options: dict[str, tuple[Field, list[str]]] = {}
    for name, row in MECHANISMS.items():
        for attribute, option in row.flags():
            options.setdefault(attribute, (option, []))[1].append(name)
    return options


def mechanism_at(args: Any, site: str) -> str:
    """Name of the mechanism that `args` (a namespace or fairseq config) asks for at `site`."""
    return getattr(args, f"attention_{site}", None) or getattr(args, "attention", None) or "softmax"


def build_mechanism(args: Any, site: str, num_heads: int, head_dim: int, dropout: float) -> Mechanism:
    """Build the mechanism of `site` with the options that `args` gives.

    Raises:
        UserError: an unknown name (from a checkpoint or an API), or a value that the mechanism refuses.
    """
    name = mechanism_at(args, site)
    if name not in MECHANISMS:
        raise UserError(f"no attention '{name}' for the site '{site}'; known: {', '.join(sorted(MECHANISMS))}")
    row = MECHANISMS[name]
    given = {option.name: getattr(args, attribute, MISSING) for attribute, option in row.flags()}
    try:
        return row(num_heads, head_dim, dropout, **{k: v for k, v in given.items() if v is not MISSING})
    except ValueError as error:
        raise UserError(f"attention '{name}' at site '{site}': {error}") from None


def refuse_unused_options(args: Any) -> None:
    """Raise UserError if `args` carries an option that no chosen mechanism has."""
    chosen = {mechanism_at(args, site) for site in SITES}
    for attribute, (_, mechanisms) in mechanism_options().items():
        if hasattr(args, attribute) and not chosen & set(mechanisms):
            raise UserError(
                f"{flag_of(attribute)} is an option of {', '.join(mechanisms)}, but the attention is "
                f"{', '.join(sorted(chosen))}; drop the flag or choose another --attention"
            )
