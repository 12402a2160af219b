"""The command that lists what can be trained."""

import argparse
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from relumt.attention.variant_spec import VariantSpec


def add_models_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the folder of the configuration."""
    from relumt.runs.dataset_config import CONFIGS_HELP, configs_folder

    parser.add_argument("--configs", type=Path, default=configs_folder(Path()), help=CONFIGS_HELP)


def models(arguments: argparse.Namespace) -> None:
    """List attention mechanisms, feed-forward layers and architectures with their flags, and the configured models.

    `fairseq-train --help` shows none of these flags, because it prints its help before it adds those of a model.
    """
    from relumt.attention.feedforward import FEEDFORWARDS
    from relumt.attention.gate import GATES
    from relumt.attention.qk_norm import QK_NORMS
    from relumt.attention.registry import MECHANISMS, load_extensions
    from relumt.plugin.options import ARCHITECTURE_SIZES, ARCHITECTURES
    from relumt.runs.dataset_config import read_models

    configured = read_models(arguments.configs)
    load_extensions()
    print("Attention mechanisms: --attention NAME; --attention-encoder, -decoder or -cross for one site")
    summaries = {name: inspect.getdoc(spec.factory) or "" for name, spec in MECHANISMS.items()}
    print(*describe_variants(MECHANISMS, summaries), sep="\n")
    norms = f"--attention-qk-norm [{{{','.join(QK_NORMS)}}}]"
    print(f"  for any of them: --attention-gate {{{','.join(GATES)}}}, {norms}")
    print("\nFeed-forward layers: --feedforward NAME; --feedforward-encoder or -decoder for one side")
    print(*describe_variants(FEEDFORWARDS, {}), sep="\n")
    print(f"\nArchitectures: --arch NAME, with sizes NAME{', NAME'.join(ARCHITECTURE_SIZES)}")
    for name, mechanism in ARCHITECTURES.items():
        print(f"  {name:<22}{mechanism} attention unless --attention names another")
    print(f"\nConfigured models ({arguments.configs / 'models.toml'}): relumt run --train --evaluate DATASET NAME")
    for name, lines in configured.items():
        print(f"  {name:<22}{' '.join(lines.split())}")


def describe_variants(registry: Mapping[str, "VariantSpec[Any]"], summaries: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variant and, indented, one for each of its flags; each flag is explained once."""
    from relumt.attention.variant_spec import flag_name

    told: set[str] = set()
    for name, spec in registry.items():
        yield f"  {name:<22}{summaries.get(name, '').partition(chr(10))[0]}".rstrip()
        for attribute, option in spec.flags():
            flag = flag_name(attribute)
            yield f"      {flag}" + ("" if flag in told else f": {option.metadata['help']} (default: {option.default})")
            told.add(flag)
