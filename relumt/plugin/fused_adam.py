"""fairseq's Adam by PyTorch's fused kernel: one pass over all parameters instead of ten over each.

    m ← β₁m + (1 − β₁)g,   v ← β₂v + (1 − β₂)g²,   θ ← (1 − ηλ)θ − η √(1 − β₂ᵗ)/(1 − β₁ᵗ) · m/(√v + ε)

with learning rate η, weight decay λ and update t. PyTorch adds its ε to √(v/(1 − β₂ᵗ)), so it gets ε/√(1 − β₂ᵗ).

fairseq uses a fused Adam if there is a GPU and no --use-old-adam, but looks for one in apex only.
"""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from fairseq.optim import adam as fairseq_adam
from fairseq.optim.fused_adam import get_fused_adam_class
from torch import Tensor
from torch.optim.adam import adam

from relumt.errors import UserError


def fused_adam_class() -> type[torch.optim.Optimizer]:
    """Return apex's fused Adam if it is installed, else PyTorch's."""
    return get_fused_adam_class() or FusedAdam


class FusedAdam(fairseq_adam.Adam):
    """fairseq's optimizer with its state, so that either can go on from the other's checkpoint.

    Args:
        use_fp16_stats: --fp16-adam-stats, which needs apex.
        settings: of fairseq's Adam.
    """

    fused_device = "cuda"

    def __init__(self, parameters: Any, use_fp16_stats: bool = False, **settings: Any) -> None:
        if use_fp16_stats:
            raise UserError("--fp16-adam-stats needs apex's fused Adam, which is not installed; drop the flag")
        super().__init__(parameters, **settings)

    def can_fuse(self, x: Tensor) -> bool:
        """Return whether the kernel can update a parameter."""
        assert x.grad is not None
        is_fp32 = x.dtype == x.grad.dtype == torch.float32
        return is_fp32 and x.device.type == self.fused_device and not x.grad.is_sparse

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the parameters that have gradients."""
        trained = [[x for x in group["params"] if x.grad is not None] for group in self.param_groups]
        if closure is not None or not all(self.can_fuse(x) for xs in trained for x in xs):
            return super().step(closure)
        for group, parameters in zip(self.param_groups, trained, strict=True):
            by_update = defaultdict(list)
            for x in parameters:
                state = self.state[x]
                if not state:
                    state |= {"step": 0, "exp_avg": torch.zeros_like(x), "exp_avg_sq": torch.zeros_like(x)}
                state["step"] += 1
                by_update[state["step"]].append(x)
            for update, members in by_update.items():
                update_together(members, [self.state[x] for x in members], update, group)
        return None


def update_together(parameters: list[Tensor], states: list[dict[str, Any]], update: int, group: dict[str, Any]) -> None:
    """Change parameters and the moments in `states`, at their update number `update`, with the settings of `group`."""
    beta1, beta2 = group["betas"]
    exp_avgs, exp_avg_sqs = ([state[name] for state in states] for name in ("exp_avg", "exp_avg_sq"))
    before = torch.full((len(parameters),), update - 1.0, device=parameters[0].device)
    adam(
        parameters, [x.grad for x in parameters if x.grad is not None], exp_avgs, exp_avg_sqs, [], list(before),
        fused=True, decoupled_weight_decay=True, amsgrad=False, maximize=False, beta1=beta1, beta2=beta2,
        lr=group["lr"], weight_decay=group["weight_decay"], eps=group["eps"] / math.sqrt(1 - beta2**update),
    )  # fmt: skip
