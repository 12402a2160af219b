"""The loss of a batch with --compile. Shapes: B batch, S source and T target positions.

Lengths are padded to few different ones, so that shapes repeat: on a GPU each has a CUDA graph. A program serves all
lengths but 1, which a compiler treats as another kind; so there are always two sentences of two positions. It is
compiled for a batch that is always the same, because a compiler's choices depend on the sizes that it sees first, and a
resumed training has to compute the same bits.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from fairseq.modules import LayerDropModuleList
from torch import Tensor
from torch.nn.attention import SDPBackend as Backend
from torch.nn.attention import sdpa_kernel

from relumt.errors import UserError, print_status
from relumt.plugin.compiled.cuda_graphs import CudaGraphs
from relumt.plugin.compiled.features import Function, Part, compiled, grow_positions
from relumt.plugin.model.mechanism_transformer import MechanismTransformer

SOFTMAX_BACKENDS = [Backend.CUDNN_ATTENTION, Backend.FLASH_ATTENTION, Backend.EFFICIENT_ATTENTION, Backend.MATH]
"""Those that PyTorch chooses from: cuDNN's plans pay where shapes repeat (`registration.py`)."""
WARM_UP_SENTENCES = 6
WARM_UP_LENGTHS = 20, 28
"""S and T of the batch to compile for. All sizes differ, because the compiler takes equal ones for one."""


class Batch(NamedTuple):
    """What a loss is computed from.

    Attributes:
        src_tokens: [B, S].
        prev_output_tokens, target: [B, T].
        numbers: further numbers of the criterion, one-dimensional, float32.
    """

    src_tokens: Tensor
    prev_output_tokens: Tensor
    target: Tensor
    numbers: Tensor


ComputeLosses = Callable[[Any, Batch, Part], dict[str, Tensor]]
"""(model, batch, what each part is wrapped in) → scalars by name; the gradient is that of "loss"."""


class CompiledLosses:
    """Computes losses by compiled functions.

    Args:
        losses: of a criterion.
        pads: indices of the padding symbol in the source and the target dictionary.
    """

    def __init__(self, losses: ComputeLosses, pads: tuple[int, int]) -> None:
        self.losses = losses
        self.pads = pads
        self.names: list[str] = []
        self.warm: set[tuple[bool, bool]] = set()
        self.graphs = CudaGraphs(self.compute)

    @sdpa_kernel(SOFTMAX_BACKENDS)
    def __call__(self, model: Any, batch: Batch) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch, and all losses by name without gradients, on the CPU.

        fairseq reads each of them after the update, and would wait for a GPU as often. In training they are copied
        while the GPU computes: fairseq reads the norm of the gradients first, and then they have arrived.
        """
        if not self.warm:
            refuse_unsupported(model)
            grow_positions(model)
        batch = self.pad(batch)
        mode = model.training, torch.is_grad_enabled()
        if mode not in self.warm:
            self.warm_up(model, batch)
            self.warm.add(mode)
        values = (self.graphs if batch.target.is_cuda else self.compute)(model, batch)
        log = values.detach().to("cpu", non_blocking=model.training)
        return values[self.names.index("loss")], dict(zip(self.names, log.unbind(), strict=True))

    def compute(self, model: Any, batch: Batch, part: Part = compiled) -> Tensor:
        """Return the losses in the order of `names`; only "loss" has a gradient."""
        values = self.losses(model, batch, part)
        self.names = list(values)
        return torch.stack([x if name == "loss" else x.detach() for name, x in values.items()])

    def pad(self, batch: Batch) -> Batch:
        """Pad a batch to lengths of `round_up` and at least two sentences."""
        source, prefix, target, numbers = batch
        source_pad, target_pad = self.pads
        return Batch(enlarge(source, source_pad), enlarge(prefix, target_pad), enlarge(target, target_pad), numbers)

    def warm_up(self, model: Any, like: Batch) -> None:
        """Compile everything, for a small batch; random numbers and gradients stay as they are."""
        purpose = "training" if model.training else "validation"
        print_status(f"compiling for {purpose}, which takes about a minute")
        limits = model.max_positions()
        source, target = (
            warm_up_tokens(like.target, pad, length, min(length, limit))
            for pad, length, limit in zip(self.pads, WARM_UP_LENGTHS, limits, strict=True)
        )
        device = like.target.device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            values = self.compute(model, Batch(source, target, target, like.numbers), marked)
            if values.requires_grad:
                parameters = [x for x in model.parameters() if x.requires_grad]
                torch.autograd.grad(values[self.names.index("loss")], parameters, allow_unused=True)


def warm_up_tokens(like: Tensor, pad: int, length: int, num_real: int) -> Tensor:
    """Return tokens [WARM_UP_SENTENCES, length] of the type of `like`, the first `num_real` of each no padding."""
    tokens = like.new_full((WARM_UP_SENTENCES, length), pad)
    tokens[:, :num_real] = pad + 1
    tokens[0, -1] = pad
    return tokens


def enlarge(tokens: Tensor, pad: int) -> Tensor:
    """Pad tokens [B, T] at the end to a length of `round_up` and at least two sentences."""
    B, T = tokens.shape
    return F.pad(tokens, (0, round_up(T) - T, 0, max(2 - B, 0)), value=pad)


def round_up(length: int) -> int:
    """Return the next length from 2 with at most four significant bits, which is at most an eighth larger."""
    length = max(length, 2)
    unit = 1 << max(0, length.bit_length() - 4)
    return -(-length // unit) * unit


def marked(function: Function) -> Function:
    """Return `compiled(function)`, which leaves the sizes of its arguments open."""

    def run(*arguments: Any) -> Any:
        for x in arguments:
            if isinstance(x, Tensor) and x.dim() > 1:
                for dim in range(x.dim() - x.is_floating_point()):  # the last size of activations is the model's
                    torch._dynamo.maybe_mark_dynamic(x, dim)
        return compiled(function)(*arguments)

    return run


def refuse_unsupported(model: Any) -> None:
    """Raise UserError if --compile does not support the model or the way it is trained."""
    reasons = {
        "a model of relumt on a single device": not isinstance(model, MechanismTransformer),
    }
    if not any(reasons.values()):
        cfg = model.encoder.cfg
        layers = (model.encoder.layers, model.decoder.layers)
        reasons = {
            "no --checkpoint-activations": cfg.checkpoint_activations,
            "no --base-layers": cfg.base_layers,
            "no LayerDrop": any(isinstance(x, LayerDropModuleList) for x in layers),
            "no quantization noise": cfg.quant_noise.pq or cfg.quant_noise.scalar,
            "no --log-attention-interval": model.attention_log.interval,
            "no --amp": torch.is_autocast_enabled("cuda"),
        }
    if reason := next((name for name, applies in reasons.items() if applies), ""):
        raise UserError(f"--compile needs {reason}; change the flags, or drop --compile")
