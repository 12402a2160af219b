"""Attention kernels of other packages, which `kernel_speed.py` times where they are installed (pip install NAME).

| system | package | what it computes |
|---|---|---|
| sigmoid, triton-sigmoid | triton-sigmoid 0.1.2 | sigmoid(q·k/√D − log n); n is the length, also if causal |
| entmax15, AdaSplash | adasplash 0.2.2 | 1.5-entmax attention without a matrix of scores; AdaSplash-2 if causal |
| entmax15, AdaSplash's projection | adasplash 0.2.2 | relumt's 1.5-entmax attention, whose weights AdaSplash computes |
| entmax15, entmax package | entmax | the same with PyTorch operators |
"""

import argparse
import functools
import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType

import torch
from torch import Tensor

from relumt.attention import AttentionMask

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@functools.cache
def import_package(name: str) -> ModuleType | None:
    """Return a package, or None after printing a line that says why it is left out."""
    if not importlib.util.find_spec(name.replace("-", "_")):
        reason = "not installed"
    elif not torch.cuda.is_available():
        reason = "it needs a GPU; in Triton's interpreter AdaSplash-1 overwrites memory"
    else:
        try:
            return importlib.import_module(name.replace("-", "_"))
        except Exception as error:  # triton-sigmoid raises RuntimeError on an old GPU
            reason = str(error).splitlines()[0][:120]
    print(f"no {name}: {reason}", file=sys.stderr)
    return None


def peer_systems(args: argparse.Namespace, mask: AttentionMask) -> dict[str, Attend]:
    """Return the attention functions of the packages that are installed; none has dropout.

    Args:
        args: what `kernel_speed.py` was asked for.
        mask: padding at the end of sentences, and whether attention is causal.
    """
    lengths = None if mask.key_mask is None else mask.key_mask.sum(-1).to(torch.int32)
    systems: dict[str, Attend] = {}
    if args.dropout:
        return systems
    if sigmoid := import_package("triton-sigmoid"):
        systems["sigmoid, triton-sigmoid"] = functools.partial(attend_by_sigmoid, sigmoid, lengths, args.causal)
    if splash := import_package("adasplash"):
        systems["entmax15, AdaSplash"] = functools.partial(splash.adasplash, is_causal=args.causal, varlen=lengths)
    return systems


def attend_by_sigmoid(
    package: ModuleType, lengths: Tensor | None, is_causal: bool, q: Tensor, k: Tensor, v: Tensor
) -> Tensor:
    """Attend with q, k and v [B, H, n, D] by triton-sigmoid, which takes and returns [B, n, H, D]."""
    q, k, v = (x.transpose(1, 2).contiguous() for x in (q, k, v))
    if lengths is None:
        output = package.sigmoid_attention(q, k, v, is_causal=is_causal)
    else:
        output = package.sigmoid_attention_padded(q, k, v, lengths, lengths, is_causal=is_causal)
    return output.transpose(1, 2)
