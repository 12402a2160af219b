"""Inference with integers: the Inhibitor's attention and linear layers, in plain PyTorch; nothing here needs fairseq.

Every number x is stored as the integer round(x / scale), symmetrically around 0 and of b ≤ 16 bits. The scales are
calibrated once, with the float model, and do not depend on the input (static quantization).

    ranges = ...                                     with observe_ranges(model) as ranges: run the float model
    quantize_(model, Quantization(bits=16, part="all"), ranges)

A checkpoint of a quantized model has integers for weights, and its settings name the `Quantization`.
"""

from relumt.quantized.attention import IntegerInhibitor, SignedIntegerInhibitor
from relumt.quantized.calibration import Ranges, observe_ranges
from relumt.quantized.conversion import PARTS, Quantization, convert_, quantize_, require_inhibitor
from relumt.quantized.linear import IntegerLinear

__all__ = [
    "PARTS",
    "IntegerInhibitor",
    "IntegerLinear",
    "Quantization",
    "Ranges",
    "SignedIntegerInhibitor",
    "convert_",
    "observe_ranges",
    "quantize_",
    "require_inhibitor",
]
