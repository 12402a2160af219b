"""The settings of a model as one flat namespace, whichever of fairseq's commands they come from.

`fairseq-train` passes a Namespace with the flags of all components. `fairseq-hydra-train` passes a DictConfig with the
model's settings alone, in which sizes may be nested (`encoder: {layers: 6}` for `--encoder-layers 6`); its parent has
the other components. `TransformerConfig.from_namespace` keeps settings that it does not know, such as the attention
mechanism, from a Namespace only: it silently drops those of a DictConfig.
"""

from argparse import Namespace
from collections.abc import Collection
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict

from relumt.errors import UserError
from relumt.plugin.options import NESTED_SETTINGS, flat_settings, suggest


def flatten_(model: DictConfig, known: Collection[str]) -> None:
    """Replace the nested settings of a model's Hydra configuration by flat ones.

    Args:
        model: the configuration, which is changed.
        known: settings that the model has. Hydra itself checks names only for models with a dataclass.

    Raises:
        UserError: a setting is not among them, so it would have no effect.
    """
    flat = flat_settings(model)
    for name in flat:
        if name not in known and name not in ("_name", "arch"):
            raise UserError(
                f"model.{name} is no setting of this model; {suggest(str(name), known)}correct the name, or drop it"
            )
    with open_dict(model):
        for name in NESTED_SETTINGS:
            model.pop(name, None)
        model.update(flat)


def as_namespace(model: Namespace | DictConfig) -> Namespace:
    """Return the settings of the model and of all other components as `fairseq-train` passes them.

    A Namespace is returned as it is. Of a flat Hydra configuration, all sections are joined; the model's settings
    precede others of the same name.
    """
    if not isinstance(model, DictConfig):
        return model
    joined: dict[str, Any] = {}
    if (root := model._get_root()) is not model:
        for component, section in _plain(root).items():
            is_section = isinstance(section, dict)
            joined |= (section if is_section else {}) | {component: section.get("_name") if is_section else section}
    joined |= _plain(model)
    joined["arch"] = joined.get("_name") or joined.get("arch")
    return Namespace(**joined)


def _plain(config: Any) -> dict[str, Any]:
    plain: Any = OmegaConf.to_container(config, resolve=True, enum_to_str=True)
    return cast(dict[str, Any], plain)


def training_section(model: Namespace | DictConfig, section: str) -> Any:
    """Return what holds the settings of another section, such as "checkpoint"; None if the model stands alone."""
    return OmegaConf.select(cast(DictConfig, model._get_root()), section) if isinstance(model, DictConfig) else model
