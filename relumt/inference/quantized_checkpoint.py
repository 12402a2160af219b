"""Quantize a trained model: calibrate its scales on a subset of its data, and write a checkpoint with integer weights.

The settings in the checkpoint say what is quantized, so fairseq-generate, `relumt analyze` and everything else that
loads checkpoints of relumt's models translate with integers. Training cannot go on from it.
"""

from argparse import Namespace
from pathlib import Path
from typing import Any

import torch

from relumt.checkpoints.loading import load_checkpoint_safely
from relumt.checkpoints.saving import save_checkpoint_durably
from relumt.checkpoints.settings import fairseq_config
from relumt.errors import UserError
from relumt.inference.loaded_model import LoadedModel, load_checkpoint_on_data
from relumt.quantized.calibration import Ranges, observe_ranges
from relumt.quantized.conversion import Converted, quantize_, require_inhibitor
from relumt.quantized.quantization import Quantization

MAX_TOKENS = 4096
"""Limit of tokens in a batch of calibration."""


def write_quantized_checkpoint(
    checkpoint: Path, data: Path, subset: str, quantization: Quantization, out: Path
) -> Converted:
    """Quantize the model of a checkpoint, and write the result; return what was replaced.

    Args:
        checkpoint: checkpoint of the float model.
        data: data-bin.
        subset: the sentences that the scales are calibrated on, by forced decoding.
        quantization: what to quantize.
        out: path of the quantized checkpoint.

    Raises:
        UserError: the model has no Inhibitor or is quantized already, or the data-bin lacks the subset.
    """
    original = load_checkpoint_safely(checkpoint)
    if hasattr(fairseq_config(original, checkpoint)["model"], "quantized_bits"):
        raise UserError(f"{checkpoint}: is quantized already; quantize the checkpoint that it was made from")
    loaded = load_checkpoint_on_data(checkpoint, data, cuda=False)
    require_inhibitor(loaded.model)  # before the long calibration
    ranges = calibrate(loaded, subset)
    converted = quantize_(loaded.model, quantization, ranges)
    save_checkpoint_durably(with_quantized_model(original, loaded, quantization), out)
    return converted


def calibrate(loaded: LoadedModel, subset: str) -> Ranges:
    """Return the ranges in a float model while it reads a subset with its references.

    Raises:
        UserError: the data has no such subset, or it is empty or damaged, or the model's output is not finite.
    """
    loaded.load_subset(subset)
    with torch.no_grad(), observe_ranges(loaded.model) as ranges:
        for sample in loaded.batches(subset, MAX_TOKENS):
            loaded.target_log_probs(sample)
    return ranges


def with_quantized_model(original: dict[str, Any], loaded: LoadedModel, quantization: Quantization) -> dict[str, Any]:
    """Return a checkpoint with the parameters of a quantized model, and with settings that say so."""
    config = fairseq_config(original, loaded.path)
    settings = vars(config["model"]) | {"quantized_bits": quantization.bits, "quantized_part": quantization.part}
    return {"cfg": config | {"model": Namespace(**settings)}, "model": loaded.model.state_dict()}
