"""The command-line flags of the registries, generated from their rows, and what they ask for at a site."""

import argparse
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass
from typing import Any, Literal, get_args, get_origin

from relumt.attention import MECHANISMS, Mechanism
from relumt.errors import UserError
from relumt.feedforward import FEEDFORWARDS, FeedForward
from relumt.variant_spec import VariantSpec, flag_name

SITES = ("encoder", "decoder", "cross")
"""Encoder self-attention, decoder self-attention, cross-attention."""


@dataclass(frozen=True)
class Choice:
    """Something that the user chooses by name, for all sites or for one: --NAME and --NAME-SITE.

    Attributes:
        name: of the flag.
        rows: the registry.
        sites: where it is chosen.
        default: what is used where neither the user nor the architecture says.
    """

    name: str
    rows: Mapping[str, VariantSpec]
    sites: tuple[str, ...]
    default: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --NAME, --NAME-SITE and every row's own flags, without defaults.

        Without, because an architecture fills in what the command line leaves open, as in fairseq. Names are checked
        in `build`, whose one line argparse would bury under fairseq's four screens of usage.
        """
        known = ", ".join(sorted(self.rows))
        parser.add_argument(f"--{self.name}", metavar="NAME", help=f"{self.name} at all sites: {known}")
        for site in self.sites:
            parser.add_argument(f"--{self.name}-{site}", metavar="NAME", help=f"{self.name} at the site '{site}'")
        for attribute, (option, owners) in self.options().items():
            add_option(parser, attribute, option, f"of {', '.join(owners)}")

    def options(self) -> dict[str, tuple[Field, list[str]]]:
        """Every option by its attribute on the command line, with the names of the rows that have it."""
        options: dict[str, tuple[Field, list[str]]] = {}
        for name, row in self.rows.items():
            for attribute, option in row.flags():
                options.setdefault(attribute, (option, []))[1].append(name)
        return options

    def at(self, args: Any, site: str) -> str:
        """The name that `args` (a namespace or fairseq config) asks for at `site`."""
        return getattr(args, f"{self.name}_{site}", None) or getattr(args, self.name, None) or self.default

    def build(self, args: Any, site: str, *arguments: Any) -> Any:
        """What the row of `site` builds of `arguments` and the options that `args` gives.

        Raises:
            UserError: an unknown name (from a checkpoint or an API), or a value that the row refuses.
        """
        name = self.at(args, site)
        if name not in self.rows:
            raise UserError(f"no {self.name} '{name}' for the site '{site}'; known: {', '.join(sorted(self.rows))}")
        row = self.rows[name]
        given = {option.name: getattr(args, attribute, MISSING) for attribute, option in row.flags()}
        try:
            return row(*arguments, **{k: v for k, v in given.items() if v is not MISSING})
        except ValueError as error:
            raise UserError(f"{self.name} '{name}' at site '{site}': {error}") from None

    def record_defaults(self, args: Any) -> None:
        """Write the defaults that are used into `args`, which a checkpoint keeps, lest a later default change it."""
        for site in self.sites:
            row = self.rows.get(self.at(args, site))
            for attribute, option in row.flags() if row else ():
                if not hasattr(args, attribute):
                    setattr(args, attribute, option.default)

    def reject_unused_options(self, args: Any) -> None:
        """Raise UserError if `args` carries an option that no chosen row has."""
        chosen = {self.at(args, site) for site in self.sites}
        for attribute, (_, owners) in self.options().items():
            if hasattr(args, attribute) and not chosen & set(owners):
                raise UserError(
                    f"{flag_name(attribute)} is an option of {', '.join(owners)}, but the {self.name} is "
                    f"{', '.join(sorted(chosen))}; drop the flag or choose another --{self.name}"
                )


ATTENTION = Choice("attention", MECHANISMS, SITES, default="softmax")
FEEDFORWARD = Choice("feedforward", FEEDFORWARDS, ("encoder", "decoder"), default="stock")
VARIANT_CHOICES = (ATTENTION, FEEDFORWARD)


def build_mechanism(args: Any, site: str, num_heads: int, head_dim: int, dropout: float) -> Mechanism:
    """The mechanism that `args` asks for at `site`; raises UserError as `Choice.build`."""
    return ATTENTION.build(args, site, num_heads, head_dim, dropout)


def build_feedforward(args: Any, site: str) -> FeedForward:
    """The feed-forward variant that `args` asks for at `site`; raises UserError as `Choice.build`."""
    return FEEDFORWARD.build(args, site)


def add_option(parser: argparse.ArgumentParser, attribute: str, option: Field, owner: str) -> None:
    """Add one option of a dataclass as `--attribute-with-dashes`."""
    flag = flag_name(attribute)
    help_line = f"{option.metadata['help']} ({owner}; default: {option.default})"
    if option.type is bool:
        parser.add_argument(flag, action=argparse.BooleanOptionalAction, help=help_line)
    elif get_origin(option.type) is Literal:
        parser.add_argument(flag, choices=get_args(option.type), help=help_line)
    else:
        parser.add_argument(flag, type=option.type, help=help_line)
