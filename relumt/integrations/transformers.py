"""Every mechanism as an attention implementation of Hugging Face Transformers. Shapes: B H T S D, E = H·D.

    relumt.integrations.transformers.register()
    model = AutoModelForCausalLM.from_config(config, attn_implementation="relumt_rela_g")
    model.save_pretrained(folder)
    AutoModelForCausalLM.from_pretrained(folder, attn_implementation="relumt_rela_g")

It serves models whose attention calls Transformers' `AttentionInterface`: encoders, decoders with a cache, and both.
Scores are what the model asks for, with its scaling and its position bias (T5). A mechanism's parameters belong to the
model from the beginning, so optimizers find them and `save_pretrained` stores them. Options of the mechanism are in
`config.relumt`, such as {"gamma": 2.0}, which `save_pretrained` stores, too. The projections keep the model's own
initialization: `init_projections` is not applied.
"""

import math
from collections.abc import Iterator
from functools import wraps
from inspect import unwrap
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import sdpa_mask

from relumt.attention import MECHANISMS, AttentionMask, Mechanism, Need, cast_saturating
from relumt.attention.mask import split_mask
from relumt.attention.multihead import repeat_heads

PREFIX = "relumt_"
"""Prefix of the names of attention implementations."""

ATTRIBUTE = "relumt_mechanism"
"""Name of the mechanism in a model's attention modules."""

NAME = "relumt_name"
"""Attribute of every part of such a mechanism: the mechanism's name in MECHANISMS."""

UNSUPPORTED = ("softcap", "s_aux", "head_mask")
"""Arguments of attention that no mechanism here can follow: caps on scores, sinks, and masks of heads."""

post_init_of_transformers = PreTrainedModel.post_init
initialize_of_transformers = PreTrainedModel._initialize_weights


def register() -> None:
    """Add "relumt_NAME" to the attention implementations for each mechanism; calling it again has no effect."""
    for name in MECHANISMS:
        AttentionInterface.register(PREFIX + name, attend)
        AttentionMaskInterface.register(PREFIX + name, sdpa_mask)
    base: Any = PreTrainedModel
    base.post_init, base._initialize_weights = post_init, initialize_weights


@wraps(post_init_of_transformers)
def post_init(model: PreTrainedModel) -> None:
    """Give each attention module of a new model its mechanism, then do what Transformers does.

    Raises:
        ValueError: the model has no attention that could be replaced.
    """
    name = model.config._attn_implementation or ""
    if name.startswith(PREFIX):
        if not (modules := list(attention_modules(model))):
            raise ValueError(
                f"{type(model).__name__} has no attention of an AttentionInterface; '{name}' cannot serve it"
            )
        for module in modules:
            if not hasattr(module, ATTRIBUTE):
                module.add_module(ATTRIBUTE, build_mechanism(module))
    post_init_of_transformers(model)


@wraps(initialize_of_transformers)
def initialize_weights(model: PreTrainedModel, module: Any, *arguments: Any, **options: Any) -> None:
    """Initialize what a checkpoint lacks; modules of mechanisms as they are, not as the model does its own norms."""
    if not hasattr(module, NAME):
        initialize_of_transformers(model, module, *arguments, **options)
        return
    parameters = list(module.parameters(recurse=False))
    if parameters and not all(getattr(parameter, "_is_hf_initialized", False) for parameter in parameters):
        module.reset_parameters()


def attention_modules(model: nn.Module) -> Iterator[nn.Module]:
    """Yield the modules whose attention comes from Transformers' `AttentionInterface`."""
    for module in model.modules():
        if "ALL_ATTENTION_FUNCTIONS" in unwrap(type(module).forward).__code__.co_names:
            yield module


def build_mechanism(module: Any) -> Mechanism:
    """Build the mechanism that the configuration of an attention module names, for the module's heads."""
    config = module.config
    name = config._attn_implementation.removeprefix(PREFIX)
    num_heads = first_attribute(module, "num_attention_heads", "num_heads", "n_heads") or config.num_attention_heads
    head_dim = first_attribute(module, "head_dim", "attention_head_size", "key_value_proj_dim")
    mechanism = MECHANISMS[name](num_heads, head_dim, **(getattr(config, "relumt", None) or {}))
    for part in mechanism.modules():
        vars(part)[NAME] = name
    return mechanism


def first_attribute(module: Any, *names: str) -> Any:
    """Return the first of these attributes that a module has; None if it has none."""
    return next((getattr(module, name) for name in names if hasattr(module, name)), None)


def attend(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, Tensor | None]:
    """Compute the attention of a module; query is [B, H, T, D], key and value are [B, H or fewer, S, D].

    Returns:
        The heads after the mechanism's norm, [B, T, H, D], and the weights [B, H, T, S] if `output_attentions` is set.

    Raises:
        ValueError: the model asks for something that the mechanism does not compute, or got it after its creation.
    """
    if refused := [name for name in UNSUPPORTED if others.get(name) is not None]:
        raise ValueError(f"relumt's attention does not support {', '.join(refused)}; use 'eager' for this model")
    mechanism = mechanism_of(module)
    B, H, T, D = query.shape
    key, value = repeat_heads(key, H), repeat_heads(value, H)
    scale = 1.0 if scaling is None else scaling * math.sqrt(D)
    if not math.isclose(scale, 1.0, rel_tol=1e-6):
        if not mechanism.has_weights:
            raise ValueError(f"{type(mechanism).__name__} computes no scores that could be scaled by {scaling}")
        query = query * scale
    # As Transformers' function for SDPA decides. Without a mask, further keys are the empty part of a static cache.
    wants_causal = module.is_causal if is_causal is None else is_causal
    is_causal = T > 1 and attention_mask is None and bool(wants_causal)
    if is_causal:
        key, value = key[:, :, :T], value[:, :, :T]
        position_bias = None if position_bias is None else position_bias[..., :T]
    visible = bias = None
    if attention_mask is not None:
        visible, bias = split_mask(hiding(attention_mask), B, H, T, key.shape[2])
    if position_bias is not None:
        bias = position_bias if bias is None else bias + position_bias
    mechanism.dropout = dropout
    need = Need.WEIGHTS if others.get("output_attentions") else Need.NOTHING
    result = mechanism(query, key, value, AttentionMask(None, is_causal, visible, bias=bias), need)
    # [B, H, T, D] -> [T, B, E] -> [B, T, H, D]
    heads = mechanism.postprocess_heads(result.output.permute(2, 0, 1, 3).flatten(2))
    return cast_saturating(heads, value.dtype).transpose(0, 1).unflatten(-1, (H, -1)), result.weights


def hiding(attention_mask: Tensor) -> Tensor:
    """Return a mask with True or −∞ for what is hidden, for one with False or the lowest number of its type."""
    if attention_mask.dtype == torch.bool:
        return ~attention_mask
    return attention_mask.masked_fill(attention_mask <= torch.finfo(attention_mask.dtype).min, -torch.inf)


def mechanism_of(module: Any) -> Mechanism:
    """Return the mechanism of an attention module; build it if the implementation was set later and has no parameters.

    Raises:
        ValueError: the mechanism has parameters, which a model must have from its creation.
    """
    found: Any = getattr(module, ATTRIBUTE, None)
    name = module.config._attn_implementation.removeprefix(PREFIX)
    if getattr(found, NAME, None) != name:
        found = build_mechanism(module).train(module.training)
        if any(True for _ in found.parameters()):
            raise ValueError(
                f"'{name}' has parameters, which a model needs from the beginning; pass "
                f"attn_implementation='{PREFIX}{name}' to from_config or from_pretrained"
            )
        module.add_module(ATTRIBUTE, found)
    mechanism: Mechanism = found
    return mechanism
