"""Makes fairseq save, copy and load checkpoints with relumt's functions.

fairseq has no hooks for this, so `install` replaces five names in fairseq's modules. Each replacement does what the
original does, and in addition:

- saving and copying are durable: a crash, a full disk or a power failure leaves the previous checkpoint intact;
- loading refuses files that are damaged or contain code, and passes on only settings that are known to be harmless;
- resuming takes the newest intact checkpoint if checkpoint_last.pt is missing, damaged or was not yet replaced;
- with --fp16 and --bf16 the optimizer's state is complete.
"""

import logging
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from fairseq import checkpoint_utils, optim
from fairseq.checkpoint_utils import load_checkpoint, load_checkpoint_to_cpu, torch_persistent_save
from fairseq.file_io import PathManager

from relumt.checkpoint_folder import LAST_CHECKPOINT
from relumt.checkpoint_recovery import recover_last_checkpoint
from relumt.checkpoint_saving import copy_checkpoint_durably, save_checkpoint_durably
from relumt.checkpoint_vetting import vet_checkpoint
from relumt.checkpoints import allow_fairseq_checkpoints, load_checkpoint_safely
from relumt.errors import exit_on_user_error
from relumt.fp16_optimizer import FP16Optimizer

PAUSES = (2.5, 2.5)
"""Seconds before each new attempt to save a checkpoint, as in fairseq."""

logger = logging.getLogger(__name__)


def install() -> None:
    """Replace fairseq's functions; calling it again has no effect."""
    allow_fairseq_checkpoints()
    checkpoint_utils.torch_persistent_save = save
    checkpoint_utils.PathManager = DurablePathManager
    checkpoint_utils.load_checkpoint_to_cpu = load_vetted
    checkpoint_utils.load_checkpoint = resume
    optim.FP16Optimizer = FP16Optimizer


def save(checkpoint: dict[str, Any], filename: str, async_write: bool = False) -> None:
    """Replace fairseq's `torch_persistent_save`; exit with status 1 if saving fails three times.

    Asynchronous writing and remote file systems are left to fairseq.
    """
    if async_write or not PathManager.supports_rename(filename):
        torch_persistent_save(checkpoint, filename, async_write)
        return
    _try_to_write(Path(filename), lambda path: save_checkpoint_durably(checkpoint, path))


class DurablePathManager(PathManager):
    """The file operations of fairseq's checkpoints, with durable copies."""

    @staticmethod
    def copy(src_path: str, dst_path: str, overwrite: bool = False) -> bool:
        """Copy a checkpoint; exit with status 1 if copying fails three times."""
        if not (PathManager.supports_rename(src_path) and PathManager.supports_rename(dst_path)):
            return bool(PathManager.copy(src_path, dst_path, overwrite=overwrite))
        _try_to_write(Path(dst_path), lambda path: copy_checkpoint_durably(Path(src_path), path))
        return True


def _try_to_write(path: Path, write: Callable[[Path], None]) -> None:
    """Call `write` with the path until it succeeds, three times at most; exit with status 1 if it does not."""
    for pause in (*PAUSES, None):
        try:
            write(path)
            return
        except OSError as error:
            reason = error.strerror or str(error)
            if pause is None:
                print(
                    f"relumt: error: {path}: could not be saved ({reason}); the checkpoints saved before are intact: "
                    "free space or repair the disk, and start the same command again",
                    file=sys.stderr,
                )
                raise SystemExit(1) from None
            logger.warning("%s could not be saved (%s); trying again in %s s", path, reason, pause)
            time.sleep(pause)


def load_vetted(path: str, arg_overrides: Any = None, load_on_all_ranks: bool = False) -> dict[str, Any]:
    """Replace fairseq's `load_checkpoint_to_cpu`; exit with a one-line message if the file must not be loaded.

    fairseq gets what was vetted in place of what it would read from the file.
    """
    with exit_on_user_error():
        checkpoint = vet_checkpoint(load_checkpoint_safely(path), path)
    torch_load = torch.load
    torch.load = lambda *_, **__: checkpoint
    try:
        return load_checkpoint_to_cpu(path, arg_overrides, load_on_all_ranks)
    finally:
        torch.load = torch_load


def resume(cfg: Any, trainer: Any, **arguments: Any) -> Any:
    """Replace fairseq's `load_checkpoint`; recover checkpoint_last.pt first if training resumes from it.

    Sharded checkpoints, which have a suffix, must all be of the same update, so they are not replaced.
    """
    resumes_from_last = cfg.restore_file == LAST_CHECKPOINT and not cfg.no_last_checkpoints
    if resumes_from_last and not trainer.checkpoint_suffix and PathManager.supports_rename(cfg.save_dir):
        if trainer.is_data_parallel_master:
            with exit_on_user_error():
                recover_last_checkpoint(Path(cfg.save_dir))
        if trainer.data_parallel_world_size > 1:
            torch.distributed.barrier(group=trainer.data_parallel_process_group)
    return load_checkpoint(cfg, trainer, **arguments)
