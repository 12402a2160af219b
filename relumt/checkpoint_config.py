"""Which settings of a checkpoint fairseq may see."""

import ast
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from relumt.errors import UserError

EVALUATED_SETTINGS = (
    "adaptive_softmax_cutoff",
    "adam_betas",
    "adam_eps",
    "decoder_xformers_att_config",
    "encoder_xformers_att_config",
    "xformers_att_config",
    "lr",
    "update_freq",
)
"""Settings that fairseq-fixed 0.12.3.1 may `eval` when it builds a model or resumes from a checkpoint."""


def reject_code_in_config(config: Any) -> None:
    """Raise UserError if a setting that fairseq passes to `eval` is a string but not a Python literal."""
    if isinstance(config, Namespace):
        config = vars(config)
    if not isinstance(config, Mapping):
        return
    for name, value in config.items():
        if name in EVALUATED_SETTINGS:
            for item in value if isinstance(value, list | tuple) else [value]:
                if isinstance(item, str) and not is_literal(item):
                    raise UserError(f"rejected the setting {name}={item!r}: expected a Python literal, found code")
        else:
            reject_code_in_config(value)


def is_literal(text: str) -> bool:
    """Return whether `text` is a Python literal such as "(0.9, 0.98)"."""
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return False
    return True
