"""Models: the flags of fairseq-train that the sections of configs/models.toml define."""

from pathlib import Path

import msgspec

from relumt.errors import UserError, quote
from relumt.runs.dataset_config import read_toml
from relumt.runs.flags import Flags, parse_flag_lines
from relumt.runs.names import list_known


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A section of models.toml: flags of fairseq-train, in lines as in a shell."""

    train: str


def read_models(configs: Path) -> dict[str, str]:
    """Return the lines of flags of each model in the folder `configs`; raise UserError if models.toml is not valid."""
    models = read_toml(configs / "models.toml", dict[str, ModelSettings], "each section has `train`")
    return {name: settings.train for name, settings in models.items()}


def require_model(name: str, configs: Path) -> Flags:
    """Return the flags of a model; raise UserError, with the names that are known, if there is none."""
    models = read_models(configs)
    if name not in models:
        raise UserError(f"no model {quote(name)} in {configs / 'models.toml'}; {list_known(name, models)}")
    return parse_flag_lines(models[name], f"{configs / 'models.toml'}:{name}")
