"""Inference with integers: the Inhibitor's attention and linear layers, in plain PyTorch; nothing here needs fairseq.

Every number x is stored as the integer round(x / scale), symmetrically around 0 and of b ≤ 16 bits. The scales are
calibrated once, with the float model, and do not depend on the input (static quantization).

    with observe_ranges(model) as ranges:
        model(...)                                        # the float model, on data for calibration
    quantize_(model, Quantization(bits=16, part="all"), ranges)

A checkpoint of a quantized model has integers for weights, and its settings name the `Quantization`.
"""
