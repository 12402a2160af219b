"""Makes fairseq save, copy and load checkpoints with relumt's functions.

fairseq has no hooks for this, so `install` replaces five names in fairseq's modules. Each replacement does what the
original does, and in addition:

- resuming with another model is refused;
- saving and copying are durable: a crash, a full disk or a power failure leaves the previous checkpoint intact;
- loading refuses files that are damaged or contain code, and passes on only settings that are harmless;
- resuming takes the newest intact checkpoint if checkpoint_last.pt is missing or damaged;
- resuming goes on counting validations without improvement (--patience);
- resuming at the end of an epoch tells the learning-rate scheduler the validation loss;
- resuming within an epoch does not stop the clock of fairseq's log;
- with --fp16 and --bf16 the optimizer's state is complete (`half_precision.py`).
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, optim
from fairseq.checkpoint_utils import load_checkpoint, torch_persistent_save
from fairseq.dataclass.configs import CommonConfig, DatasetConfig, FairseqConfig
from fairseq.dataclass.utils import overwrite_args_by_name
from fairseq.file_io import PathManager
from fairseq.logging import metrics
from omegaconf import OmegaConf

from relumt.errors import print_status
from relumt.plugin.checkpoints.averaging import refuse_other_model
from relumt.plugin.checkpoints.folder import LAST_CHECKPOINT
from relumt.plugin.checkpoints.half_precision import FP16Optimizer
from relumt.plugin.checkpoints.loading import allow_fairseq_checkpoints, load_checkpoint_safely, vet_checkpoint
from relumt.plugin.checkpoints.recovery import copy_checkpoint_durably, recover_last_checkpoint, save_checkpoint_durably

EARLY_STOPPING = "early_stopping"
"""Key of what --patience counts in the state of training."""


def install() -> None:
    """Replace fairseq's functions; calling it again has no effect."""
    allow_fairseq_checkpoints()
    checkpoint_utils.torch_persistent_save = save
    checkpoint_utils.PathManager = DurablePathManager
    checkpoint_utils.load_checkpoint_to_cpu = load_vetted
    checkpoint_utils.load_checkpoint = resume
    optim.FP16Optimizer = FP16Optimizer


def save(checkpoint: dict[str, Any], filename: str, async_write: bool = False) -> None:
    """Replace fairseq's `torch_persistent_save`; raise if saving fails.

    --write-checkpoints-asynchronously is left to fairseq, whose library writes a file while training goes on.
    """
    if "extra_state" in checkpoint:
        checkpoint["extra_state"][EARLY_STOPPING] = dict(early_stopping_counter())
    if async_write:
        torch_persistent_save(checkpoint, filename, async_write)
    else:
        save_checkpoint_durably(checkpoint, Path(filename))


def early_stopping_counter() -> dict[str, Any]:
    """Return what fairseq-train counts for --patience, to read or to change: "best" and "num_runs".

    They are attributes of its function, which `python -m fairseq_cli.train` has in `__main__`. Others have none.
    """
    modules = (sys.modules.get(name) for name in ("__main__", "fairseq_cli.train"))
    found = (getattr(module, "should_stop_early", None) for module in modules)
    return next((function.__dict__ for function in found if function is not None), {})


class DurablePathManager(PathManager):
    """The file operations of fairseq's checkpoints, with durable copies."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Copy a checkpoint; raise AttemptFailedError if that fails."""
        copy_checkpoint_durably(Path(src_path), Path(dst_path))
        return True


def load_vetted(path: str, arg_overrides: Any = None, load_on_all_ranks: bool = False) -> dict[str, Any]:
    """Replace fairseq's `load_checkpoint_to_cpu`; raise UserError if the file must not be loaded."""
    checkpoint = vet_checkpoint(load_checkpoint_safely(path), path)
    # As fairseq does. Without the flag, OmegaConf refuses the namespace in it.
    checkpoint["cfg"] = OmegaConf.create(default_sections() | checkpoint["cfg"], flags={"allow_objects": True})
    if isinstance(seed := getattr(checkpoint["cfg"]["model"], "seed", None), int):
        checkpoint["cfg"]["common"]["seed"] = seed
    if arg_overrides is not None:
        overwrite_args_by_name(checkpoint["cfg"], arg_overrides)
    upgraded: dict[str, Any] = checkpoint_utils._upgrade_state_dict(checkpoint)
    return upgraded


def default_sections() -> dict[str, Any]:
    """Return the sections of a configuration that `from_pretrained` reads, with defaults instead of a file's values."""
    sections = {"common": CommonConfig, "dataset": DatasetConfig, "generation": FairseqConfig.generation}
    structured = {name: OmegaConf.structured(section) for name, section in sections.items()}
    return structured | {"tokenizer": None, "bpe": None}


def resume(cfg: Any, trainer: Any, **arguments: Any) -> Any:
    """Replace fairseq's `load_checkpoint`; recover the last checkpoint if training resumes from it.

    Sharded checkpoints, which have a suffix, must all be of the same update, so they are not replaced.

    Raises:
        UserError: there is no intact checkpoint to resume from, or it belongs to another model.
    """
    # fairseq's first process would send the checkpoint to the others, where `torch.load` refuses fairseq's classes.
    cfg.load_checkpoint_on_all_dp_ranks = True
    keeps_last = not getattr(cfg, "no_last_checkpoints", False)
    if cfg.restore_file == LAST_CHECKPOINT and keeps_last and not trainer.checkpoint_suffix:
        if trainer.is_data_parallel_master:
            recover_last_checkpoint(Path(cfg.save_dir))
        if trainer.data_parallel_world_size > 1:
            torch.distributed.barrier(group=trainer.data_parallel_process_group)
    started = metrics.get_meter("default", "wall")
    with refusing_unsuitable_models(cfg, trainer):
        extra_state, epochs = load_checkpoint(cfg, trainer, **arguments)
    if extra_state is None and cfg.restore_file != LAST_CHECKPOINT:
        print_status(f"--restore-file {cfg.restore_file}: no such file; training starts from the beginning")
    if (clock := metrics.get_meter("default", "wall")) and started is not None:
        clock.start_time = started.start_time  # that of a checkpoint within an epoch stands still
    # fairseq restores this number with the optimizer and the scheduler, and none of them with --finetune-from-model
    continues_training = bool(trainer.get_num_updates())
    if extra_state is not None and continues_training and not cfg.reset_meters:
        early_stopping_counter().update(extra_state.get(EARLY_STOPPING, {}))
    if extra_state is not None and continues_training and not (cfg.reset_lr_scheduler or cfg.reset_dataloader):
        finish_epoch_of_scheduler(trainer, extra_state)
    return extra_state, epochs


@contextmanager
def refusing_unsuitable_models(cfg: Any, trainer: Any) -> Iterator[None]:
    """Raise UserError if fairseq loads a checkpoint whose weights the model to be trained cannot take.

    A new training that only begins with the weights may be of another model, but of the same vocabulary.
    """

    def load_suitable_model(path: str, *arguments: Any, **options: Any) -> dict[str, Any]:
        checkpoint = load_vetted(path, *arguments, **options)
        is_new_training = cfg.reset_optimizer or path == cfg.finetune_from_model
        refuse_other_model(checkpoint["cfg"]["model"], trainer.cfg.model, path, is_new_training)
        return checkpoint

    checkpoint_utils.load_checkpoint_to_cpu = load_suitable_model
    try:
        yield
    finally:
        checkpoint_utils.load_checkpoint_to_cpu = load_vetted


def finish_epoch_of_scheduler(trainer: Any, extra_state: Mapping[str, Any]) -> None:
    """Tell the learning-rate scheduler the validation loss with which the last epoch ended.

    fairseq saves the checkpoint of an epoch's end before it tells the scheduler, so a resumed scheduler would not know
    that loss: its best loss would differ, and `reduce_lr_on_plateau` would train with another learning rate.
    """
    position, loss = extra_state["train_iterator"], extra_state.get("val_loss")
    if position["iterations_in_epoch"] == 0 and loss is not None:
        trainer.lr_step(position["epoch"] - 1, loss)
