"""The worker of an epoch ends when fairseq drops the epoch's iterator."""

import gc
from multiprocessing import active_children

import pytest
from fairseq.data import FairseqDataset
from fairseq.tasks import FairseqTask

from relumt.plugin.tasks import worker_cleanup


class Numbers(FairseqDataset):
    """Eight numbers."""

    def __getitem__(self, index):
        return index

    def __len__(self):
        return 8

    def num_tokens(self, index):
        return 1

    def size(self, index):
        return 1

    def collater(self, samples):
        return samples


@pytest.fixture
def no_garbage_collection():
    gc.disable()
    yield
    gc.enable()


def test_workers_do_not_outlive_their_epochs(no_garbage_collection):
    worker_cleanup.install()
    task, dataset = FairseqTask(None), Numbers()
    before = len(active_children())
    for epoch in range(1, 4):
        batches = task.get_batch_iterator(
            dataset, max_sentences=2, num_workers=1, epoch=epoch, disable_iterator_cache=True
        )
        assert len(list(batches.next_epoch_itr())) == 4
        assert len(active_children()) == before + 1
        del batches
        assert len(active_children()) == before
