"""Compares the layers of a built model with those that its settings ask for.

Between the settings and the layers lie fairseq's registries, configurations and builders, which drop what they do not
know. Without this check, a dropped setting would train softmax under the name of another mechanism.
"""

from argparse import Namespace

import torch
from omegaconf import DictConfig
from torch import nn

from relumt.attention.gate import OutputGate
from relumt.errors import UserError
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.layers import FeedForwardMixin
from relumt.plugin.options import ATTENTION_CHOICE, FEEDFORWARD_CHOICE


def check_built_layers(model: nn.Module, args: Namespace | DictConfig) -> None:
    """Raise UserError unless the number of layers and the layers at every site are those that `args` asks for."""
    for side in ("encoder", "decoder"):
        _refuse_difference(
            side, f"{len(getattr(model, side).layers)} layers", f"{getattr(args, f'{side}_layers')} layers"
        )
    with torch.device("meta"):  # draws no random numbers
        for name, module in model.named_modules():
            if isinstance(module, MechanismAttention):
                built = f"{module.mechanism} with gate {module.gate}"
                _refuse_difference(name, built, _requested_attention(module.site, args))
            elif isinstance(module, FeedForwardMixin):
                activation = None if module.feedforward.activation is None else module.activation_fn
                built = f"{activation} between {module.fc1} and {module.fc2}"
                _refuse_difference(name, built, _requested_feedforward(module.side, args))


def _requested_attention(site: str, args: Namespace | DictConfig) -> str:
    side = "encoder" if site == "encoder" else "decoder"
    embed_dim, num_heads = (int(getattr(args, f"{side}_{size}")) for size in ("embed_dim", "attention_heads"))
    mechanism = ATTENTION_CHOICE.build(args, site, num_heads, embed_dim // num_heads, args.attention_dropout)
    kind = getattr(args, "attention_gate", None)
    return f"{mechanism} with gate {kind and OutputGate(kind, embed_dim, num_heads)}"


def _requested_feedforward(side: str, args: Namespace | DictConfig) -> str:
    embed_dim, width = (int(getattr(args, f"{side}_{size}")) for size in ("embed_dim", "ffn_embed_dim"))
    requested = FEEDFORWARD_CHOICE.build(args, side)
    activation = requested.activation and requested.activation()
    fc1 = requested.configure_fc1(nn.Linear(embed_dim, requested.num_scores(width)))
    fc2 = requested.configure_fc2(nn.Linear(requested.num_slots(width), embed_dim))
    return f"{activation} between {fc1} and {fc2}"


def _refuse_difference(place: str, built: str, requested: str) -> None:
    if built != requested:
        built, requested = (" ".join(text.split()) for text in (built, requested))
        raise UserError(
            f"{place} was built as {built}, but the settings ask for {requested}; fairseq has lost a setting on the "
            "way: report this with your command or configuration"
        )
