"""The iterator over the batches of epochs: starts workers only if they have room, resumes, and leaves no cycles."""

import resource
import shutil
import weakref
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from fairseq.data.iterators import EpochBatchIterator

from relumt.errors import print_status

SHARED_MEMORY = Path("/dev/shm")
"""Where Linux keeps what processes share."""

MIN_SHARED_MEMORY = 32 << 20
"""Bytes: twenty batches of 64k tokens. Docker gives a container 64 MiB by default."""

MIN_OPEN_FILES = 256
"""fairseq keeps a dozen batches, each of whose tensors is an open file."""

BATCHES = "batches"
"""Key of the number of batches of an epoch in the state of its iterator."""


@cache
def can_start_workers() -> bool:
    """Return whether worker processes have what they need to pass on batches; if not, say so once."""
    free = shutil.disk_usage(SHARED_MEMORY).free if SHARED_MEMORY.is_dir() else MIN_SHARED_MEMORY
    open_files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if free >= MIN_SHARED_MEMORY and not 0 <= open_files < MIN_OPEN_FILES:  # -1 is unlimited
        return True
    print_status(
        f"batches are prepared without worker processes, which need {MIN_SHARED_MEMORY >> 20} MiB in {SHARED_MEMORY} "
        f"(found {free / 2**20:.1f}) and {MIN_OPEN_FILES} open files (ulimit -n is {open_files})"
    )
    return False


class TrainingEpochBatchIterator(EpochBatchIterator):
    """fairseq's iterator over the batches of epochs, to which its sampler refers only weakly; its state has more.

    A worker process that cannot pass on a batch goes on with the next, and fairseq waits for the batch forever. So
    without enough shared memory or open files, this process prepares the same batches itself.

    With --update-epoch-batch-itr, fairseq makes a new iterator for each epoch. The iterator and its sampler refer to
    each other, so the old one and its data loader's worker live until Python looks for cycles, often for many epochs.
    Each worker keeps all memory that the training process had when it was forked.

    If training resumes with other batches, because of --max-tokens or the number of devices, fairseq skips as many as
    before, or refuses to if there are fewer. Here it skips the same part of the epoch.
    """

    num_workers: int

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if self.num_workers and not can_start_workers():
            self.num_workers, self.persistent_workers = 0, False

    def state_dict(self) -> dict[str, Any]:
        """Return fairseq's state and the number of batches."""
        return {**super().state_dict(), BATCHES: len(self)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore what `state_dict` returned; with another number of batches, the same part of them is skipped."""
        self.epoch = state_dict["epoch"]  # the batches depend on it
        done, count = state_dict.get("iterations_in_epoch", 0), state_dict.get(BATCHES)
        if done and count:
            state_dict = state_dict | {"iterations_in_epoch": done * len(self) // count}
        super().load_state_dict(state_dict)

    @property
    def ordered_batches(self) -> Callable[..., Any]:
        """What the sampler keeps: fairseq's method of the same name, which does not keep the iterator alive."""
        iterator = weakref.ref(self)
        return lambda *args: EpochBatchIterator.ordered_batches(iterator(), *args)
