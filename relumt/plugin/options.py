"""Command-line flags of both registries, generated from their entries, and what they build at a site."""

import argparse
from collections.abc import Mapping
from dataclasses import Field, dataclass
from typing import Any, Generic, Literal, TypeVar, get_args, get_origin

from relumt.attention import MECHANISMS, Mechanism
from relumt.attention.feedforward import FEEDFORWARDS, FeedForward
from relumt.attention.variant_spec import VariantSpec, flag_name, suggest
from relumt.errors import UserError, quote

SITES = ("encoder", "decoder", "cross")
"""Encoder self-attention, decoder self-attention, cross-attention."""

ARCHITECTURES = {"mechanism_transformer": "softmax", "reluformer": "relu", "rela": "rela_g", "inhibitor": "inhibitor"}
"""Architecture -> its mechanism, unless --attention chooses another."""

ARCHITECTURE_SIZES = ("", "_tiny", "_iwslt_de_en", "_wmt_en_de")
"""Suffixes of architectures with fairseq's sizes. [RF] uses `_iwslt_de_en` and `_wmt_en_de`."""

NESTED_SETTINGS = ("encoder", "decoder", "quant_noise")
"""Sections of fairseq's TransformerConfig; their settings are flags with these prefixes."""

Variant = TypeVar("Variant")


@dataclass(frozen=True)
class VariantChoice(Generic[Variant]):
    """The choice of a registry entry by name, for all sites (--NAME) or for one (--NAME-SITE).

    Attributes:
        name: name of the flag.
        registry: the variants to choose from.
        sites: parts of the model that can have different variants.
        default: name of the variant if neither the user nor the architecture chooses one.
    """

    name: str
    registry: Mapping[str, VariantSpec[Variant]]
    sites: tuple[str, ...]
    default: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add --NAME, --NAME-SITE and the options of every variant.

        They have no defaults, because fairseq lets an architecture fill in what the command line leaves open. Names
        are checked in `check`, because argparse would bury the error under four screens of fairseq's usage.
        """
        known = ", ".join(sorted(self.registry))
        parser.add_argument(f"--{self.name}", metavar="NAME", help=f"{self.name} at all sites: {known}")
        for site in self.sites:
            parser.add_argument(f"--{self.name}-{site}", metavar="NAME", help=f"{self.name} at the site '{site}'")
        for attribute, (option, owners) in self.options().items():
            help_line = f"{option.metadata['help']} (option of {', '.join(owners)}; default: {option.default})"
            value: dict[str, Any] = {"type": option.type}
            if option.type is bool:
                value = {"action": argparse.BooleanOptionalAction}
            elif get_origin(option.type) is Literal:
                value = {"choices": get_args(option.type)}
            parser.add_argument(flag_name(attribute), help=help_line, **value)

    def attributes(self) -> list[str]:
        """Return the settings that hold a name."""
        return [self.name, *(f"{self.name}_{site}" for site in self.sites)]

    def options(self) -> dict[str, tuple[Field[Any], list[str]]]:
        """Map each option, as its attribute on the command line, to its field and the variants that have it."""
        options: dict[str, tuple[Field[Any], list[str]]] = {}
        for name, spec in self.registry.items():
            for attribute, option in spec.flags():
                options.setdefault(attribute, (option, []))[1].append(name)
        return options

    def name_at(self, args: Any, site: str) -> str:
        """Return the name that `args` (a namespace or fairseq config) asks for at `site`."""
        for attribute in (f"{self.name}_{site}", self.name):
            name: str | None = getattr(args, attribute, None)
            if name is not None:
                return name
        return self.default

    def check(self, args: Any, is_trained: bool) -> None:
        """Check the names and the options of variants in `args`.

        Raises:
            UserError: a name is unknown, or unless the model `is_trained` an option belongs to none of the variants.
        """
        for attribute in self.attributes():
            name = getattr(args, attribute, None)
            if name is not None and name not in self.registry:
                raise UserError(
                    f"unknown {self.name} {quote(str(name))} in {flag_name(attribute)}; "
                    f"{suggest(str(name), self.registry)}choose from {', '.join(sorted(self.registry))}"
                )
        chosen = {self.name_at(args, site) for site in self.sites}
        for attribute, (_, owners) in self.options().items():
            if not is_trained and hasattr(args, attribute) and not chosen & set(owners):
                raise UserError(
                    f"{flag_name(attribute)} is an option of {', '.join(owners)}, but the {self.name} is "
                    f"{', '.join(sorted(chosen))}; drop the flag or choose another --{self.name}"
                )

    def build(self, args: Any, site: str, *arguments: Any) -> Variant:
        """Build what `args` asks for at `site` from `arguments` and the options in `args`, which `check` has checked.

        Raises:
            UserError: an option does not allow its value.
        """
        name = self.name_at(args, site)
        spec = self.registry[name]
        given = {option.name: getattr(args, name) for name, option in spec.flags() if hasattr(args, name)}
        try:
            return spec(*arguments, **given)
        except ValueError as error:
            raise UserError(f"{self.name} '{name}' at the site '{site}': {error}") from None

    def record_defaults(self, args: Any) -> None:
        """Set the options in use that `args` lacks to their defaults; a checkpoint keeps them if a default changes."""
        for site in self.sites:
            for attribute, option in self.registry[self.name_at(args, site)].flags():
                if not hasattr(args, attribute):
                    setattr(args, attribute, option.default)


ATTENTION_CHOICE: VariantChoice[Mechanism] = VariantChoice("attention", MECHANISMS, SITES, default="softmax")
FEEDFORWARD_CHOICE: VariantChoice[FeedForward] = VariantChoice(
    "feedforward", FEEDFORWARDS, ("encoder", "decoder"), default="stock"
)
VARIANT_CHOICES = (ATTENTION_CHOICE, FEEDFORWARD_CHOICE)


def flat_settings(settings: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return settings of a model with those of nested sections under the names of their flags."""
    flat = dict(settings)
    for section in NESTED_SETTINGS:
        if isinstance(settings.get(section), Mapping):
            flat |= {f"{section}_{name}": value for name, value in flat.pop(section).items()}
    return flat


def variant_settings() -> set[str]:
    """Return the names of the settings that choose mechanisms, feed-forward variants and gates, with their options."""
    names = {"attention_gate", "attention_qk_norm", "attention_softmax_epochs"}
    for choice in VARIANT_CHOICES:
        names |= {*choice.attributes(), *choice.options()}
    return names
