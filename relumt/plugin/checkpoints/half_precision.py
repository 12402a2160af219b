"""The optimizer of --fp16 and --bf16: fp32 master weights; the model has rounded copies."""

from collections.abc import Mapping
from functools import cached_property
from typing import Any

import torch
from fairseq import optim
from omegaconf import DictConfig
from torch import Tensor

MASTER_WEIGHTS = "fp32_params"
"""Key of the master weights in the optimizer's state."""

SCALER = "loss_scaler"
"""Key of the loss scaler's state in the optimizer's state."""

SCALER_COUNTERS = ("loss_scale", "_iter", "_last_overflow_iter", "_last_rescale_iter", "_overflows_since_rescale")
"""The attributes of fairseq's DynamicLossScaler that change in training."""


class FP16Optimizer(optim.FP16Optimizer):
    """fairseq's optimizer for --fp16 and --bf16 with a complete state, so that resuming is exact, and with few kernels.

    fairseq updates fp32 master weights and copies them, rounded, to the model. It saves only the rounded weights and
    the current loss scale, so a resumed training would start from rounded weights and rescale at other updates.

    With --fp16 all master weights are one tensor. With --bf16 each is one, which suits TPUs: on a GPU a step then takes
    4,000 kernels instead of 1,700, and its optimizer computes the same.

    It keeps fairseq's name, because fairseq resumes only if the name of the optimizer's class is the same. Stock
    fairseq ignores the additional entries, and checkpoints without them load as in stock fairseq.
    """

    _needs_sync: bool

    @classmethod
    def build_optimizer(cls, cfg: DictConfig, params: Any, **kwargs: Any) -> "FP16Optimizer":
        """Build the optimizer; on a GPU its master weights are one tensor if it can be."""
        params = list(params)
        has_own_settings = any(hasattr(x, name) for x in params for name in ("param_group", "optim_overrides"))
        if cfg.common.bf16 and not (cfg.common.tpu or cfg.common.fp16_no_flatten_grads or has_own_settings):
            masters = cls.build_fp32_params(cfg.optimizer, params)
            fp32_optimizer = optim.build_optimizer(cfg.optimizer, [masters])
            if fp32_optimizer.supports_flat_params:
                return cls(cfg, params, fp32_optimizer, masters, **kwargs)
        built: FP16Optimizer = super().build_optimizer(cfg, params, **kwargs)
        return built

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's state, the master weights, and the loss scaler's state if there is one."""
        state = super().state_dict() | {MASTER_WEIGHTS: [weights.detach() for weights in self._master_weights()]}
        if self.scaler is not None:
            state[SCALER] = {name: getattr(self.scaler, name) for name in SCALER_COUNTERS}
        return state

    def load_state_dict(self, state_dict: dict[str, Any], optimizer_overrides: dict[str, Any] | None = None) -> None:
        """Restore what `state_dict` returned, also if each weight was a tensor of its own."""
        if self.has_flat_params and len(state_dict["state"]) > 1:
            state_dict = flatten_state(state_dict)
        super().load_state_dict(state_dict, optimizer_overrides)
        if MASTER_WEIGHTS in state_dict:
            with torch.no_grad():
                for weights, saved in zip(self._master_weights(), state_dict[MASTER_WEIGHTS], strict=True):
                    weights.copy_(saved)
        if self.scaler is not None and SCALER in state_dict:
            for name in SCALER_COUNTERS:
                setattr(self.scaler, name, state_dict[SCALER][name])

    def _master_weights(self) -> list[Tensor]:
        """Return the fp32 weights: one per parameter, or all of a device in one (in a dictionary by device)."""
        return list(self.fp32_params.values() if isinstance(self.fp32_params, dict) else self.fp32_params)

    @cached_property
    def _master_views(self) -> tuple[list[Tensor], list[Tensor]]:
        """The parts of the one master weight, and of its gradient, that belong to each parameter."""
        (master,) = self._master_weights()
        assert master.grad is not None  # fairseq allocates it with the weights
        sizes = [x.numel() for x in self.fp16_params]
        data, grad = (
            [part.view_as(x) for part, x in zip(flat.split(sizes), self.fp16_params, strict=True)]
            for flat in (master.data, master.grad)
        )
        return data, grad

    def clip_grad_norm(self, max_norm: float, aggregate_norm_fn: Any = None) -> Tensor:
        """Clip the norm of the gradients and return it, on the CPU: fairseq reads it several times."""
        norm: Tensor = super().clip_grad_norm(max_norm, aggregate_norm_fn)
        return norm.cpu()

    @torch.no_grad()
    def _sync_fp16_grads_to_fp32(self) -> None:
        """Copy the gradients to that of the master weights, all at once."""
        if not (self._needs_sync and self.has_flat_params):
            super()._sync_fp16_grads_to_fp32()
            return
        pairs = list(zip(self._master_views[1], (x.grad for x in self.fp16_params), strict=True))
        torch._foreach_copy_([view for view, grad in pairs if grad is not None], [x for _, x in pairs if x is not None])
        if unused := [view for view, grad in pairs if grad is None]:
            torch._foreach_zero_(unused)
        self._needs_sync = False

    @torch.no_grad()
    def _sync_fp32_params_to_fp16(self) -> None:
        """Copy the master weights to the model, all at once."""
        if self.has_flat_params:
            torch._foreach_copy_([x.data for x in self.fp16_params], self._master_views[0])
        else:
            super()._sync_fp32_params_to_fp16()


def flatten_state(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimizer's state for one tensor instead of one for each parameter, which have their own entries."""
    (group,) = state["param_groups"]
    entries = [state["state"][number] for number in group["params"]]
    flat = {
        name: torch.cat([entry[name].flatten() for entry in entries]) if isinstance(x, Tensor) and x.dim() else x
        for name, x in entries[0].items()
    }
    flat_state = {**state, "state": {0: flat}, "param_groups": [group | {"params": [0]}]}
    if MASTER_WEIGHTS in state:
        flat_state[MASTER_WEIGHTS] = [torch.cat([x.flatten() for x in state[MASTER_WEIGHTS]])]
    return flat_state
