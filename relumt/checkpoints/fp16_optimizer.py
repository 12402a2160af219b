"""Saves the complete state of training in fp16 and bf16, so that resuming is exact.

fairseq updates fp32 master weights and copies them, rounded, to the model. It saves only the rounded weights and the
current loss scale. A resumed training would start from rounded weights and scale the loss up at other updates.
"""

from typing import Any

import torch
from fairseq import optim
from torch import Tensor

from relumt.errors import UserError, exit_on_user_error

MASTER_WEIGHTS = "fp32_params"
"""Key of the master weights in the optimizer's state."""

SCALER = "loss_scaler"
"""Key of the loss scaler's state in the optimizer's state."""

SCALER_COUNTERS = ("loss_scale", "_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
"""The attributes of fairseq's DynamicLossScaler that change in training."""


class FP16Optimizer(optim.FP16Optimizer):
    """fairseq's optimizer for --fp16 and --bf16 with a complete state.

    It keeps fairseq's name, because fairseq resumes only if the name of the optimizer's class is the same. Stock
    fairseq ignores the additional entries, and checkpoints without them load as in stock fairseq.
    """

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's state, the master weights, and the loss scaler's state if there is one."""
        state = super().state_dict() | {MASTER_WEIGHTS: [weights.detach() for weights in self._master_weights()]}
        if self.scaler is not None:
            state[SCALER] = {name: getattr(self.scaler, name) for name in SCALER_COUNTERS}
        return state

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Restore what `state_dict` returned; exit with a one-line message if the weights have other shapes."""
        super().load_state_dict(state_dict, optimizer_overrides)
        with exit_on_user_error():
            self._load_master_weights(state_dict.get(MASTER_WEIGHTS))
        if self.scaler is not None and SCALER in state_dict:
            for name in SCALER_COUNTERS:
                setattr(self.scaler, name, state_dict[SCALER][name])

    def _load_master_weights(self, saved: list[Tensor] | None) -> None:
        if saved is None:
            return
        weights = self._master_weights()
        expected, found = [[tuple(tensor.shape) for tensor in tensors] for tensors in (weights, saved)]
        if expected != found:
            raise UserError(
                "the fp32 weights in the checkpoint have other shapes than those of this model; resume with the flags "
                "of the first start, or with --reset-optimizer"
            )
        with torch.no_grad():
            for weight, value in zip(weights, saved, strict=True):
                weight.copy_(value)

    def _master_weights(self) -> list[Tensor]:
        """Return the fp32 weights: one per parameter, or all of a device in one (in a dictionary by device)."""
        return list(self.fp32_params.values() if isinstance(self.fp32_params, dict) else self.fp32_params)
