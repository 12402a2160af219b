"""Importing relumt beside fairseq changes nothing; --user-dir registers it, and shows errors of users on one line."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from fairseq.data import iterators
from torch.utils.data import TensorDataset

import relumt
from relumt.plugin.batches import MIN_OPEN_FILES, MIN_SHARED_MEMORY, can_start_workers
from tests.fairseq_cases import write_fairseq
from tests.plugin.model.build import SMALL, write_data_bin

PACKAGE = Path(relumt.__file__).parent

UNCHANGED = f"""
import os, torch
import fairseq.options, fairseq.tasks, fairseq.optim
from fairseq import checkpoint_utils, models
from fairseq.data import iterators
from fairseq.utils import import_user_module
from argparse import Namespace
precisions = ["highest"]
torch.cpu.get_capabilities = lambda: {{"avx512_f": True}}
torch.set_float32_matmul_precision = precisions.append
torch.get_float32_matmul_precision = lambda: precisions[-1]

def state():
    hooks = [fairseq.options.GenerationConfig, fairseq.tasks.FairseqTask.build_generator, iterators.EpochBatchIterator]
    return [*hooks, *vars(checkpoint_utils).values()], list(models.ARCH_MODEL_REGISTRY), dict(os.environ), precisions[:]

before = state()
import relumt.attention
assert state() == before
for name in [name for name in __import__("sys").modules if name.startswith("relumt")]:
    del __import__("sys").modules[name]
import_user_module(Namespace(user_dir={str(PACKAGE)!r}))
after = state()
assert all(one != other for one, other in zip(before, after))
assert "reluformer" in after[1] and precisions[-1] == "medium"
assert checkpoint_utils.load_checkpoint_to_cpu.__module__ == "relumt.plugin.checkpoints.fairseq_hooks"
"""


def test_only_user_dir_changes_fairseq():
    subprocess.run([sys.executable, "-c", UNCHANGED], cwd=PACKAGE.parent, check=True)


def test_fairseq_train_ends_in_one_line(tmp_path):
    """Whatever raises the error: here the model, after fairseq has read the data."""
    data = write_data_bin(tmp_path / "bin", [(4, 5)], "train")
    words = [data, "--user-dir", PACKAGE, "--arch", "reluformer", "--attention", "sotfmax", "--cpu", *SMALL]
    words += ["-s", "de", "-t", "en", "--optimizer", "adam", "--max-tokens", "100", "--save-dir", tmp_path / "saved"]
    command = [sys.executable, "-P", "-m", "fairseq_cli.train", *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert run.stderr.splitlines()[-1].startswith("relumt: error: unknown attention 'sotfmax' in --attention; did you")
    assert "Traceback" not in run.stderr and not list((tmp_path / "saved").iterdir())


def test_user_dir_refuses_an_untested_fairseq_in_one_line(tmp_path):
    package = write_fairseq(tmp_path, "0.12.2")
    run = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import relumt.tasks.user_dir"],
        cwd=PACKAGE.parent,
        env={name: value for name, value in os.environ.items() if name != "RELUMT_FAIRSEQ"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 2 and run.stderr.count("\n") == 1, run.stderr
    assert run.stderr.startswith("relumt: error: expected fairseq ") and f"found 0.12.2 in {package}; " in run.stderr


@pytest.mark.parametrize(("lacking_bytes", "lacking_files"), [(0, 0), (1, 0), (0, 1), (0, MIN_OPEN_FILES + 1)])
def test_without_room_for_workers_the_same_batches_come_without_them(monkeypatch, capfd, lacking_bytes, lacking_files):
    free, limit = MIN_SHARED_MEMORY - lacking_bytes, MIN_OPEN_FILES - lacking_files
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    monkeypatch.setattr("resource.getrlimit", lambda _: (limit, limit))
    can_start_workers.cache_clear()
    batches, is_lacking = [[0, 1], [2], [3, 4, 5]], 1 in (lacking_bytes, lacking_files)
    for _ in range(2):
        iterator = iterators.EpochBatchIterator(TensorDataset(torch.arange(6)), list, batches, num_workers=1)
        found = [[int(item) for (item,) in batch] for batch in iterator.next_epoch_itr(shuffle=False)]
        assert found == batches and iterator.num_workers == (not is_lacking)
    assert capfd.readouterr().err.count("relumt: batches are prepared without worker processes") == is_lacking
    can_start_workers.cache_clear()


def make_iterator(count):
    """fairseq's iterator over batches that are the numbers below `count`."""
    numbers = torch.utils.data.TensorDataset(torch.arange(count))
    batches = [[number] for number in range(count)]
    return iterators.EpochBatchIterator(numbers, lambda items: int(items[0][0]), batches, disable_shuffling=True)


def batches_left(state, count):
    """The batches that an iterator over `count` batches still has after it loaded a state."""
    iterator = make_iterator(count)
    iterator.load_state_dict(state)
    return list(iterator.next_epoch_itr(shuffle=False))


@pytest.mark.parametrize(("count", "first"), [(40, 10), (80, 20), (41, 10), (12, 3), (3, 0)])
def test_resuming_with_other_batches_skips_the_same_part_of_the_epoch(count, first):
    """fairseq skips as many batches as before, and fails if there are no more."""
    relumt.register()
    started = make_iterator(40)
    batches = started.next_epoch_itr(shuffle=False)
    assert [next(batches) for _ in range(10)] == list(range(10))
    state = started.state_dict()
    assert state["iterations_in_epoch"] == 10
    assert batches_left(state, count) == list(range(first, count))
    del state["batches"]  # as in a checkpoint of stock fairseq
    assert batches_left(state, 41) == list(range(10, 41))
