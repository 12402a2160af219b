"""The criterion under DistributedDataParallel: two workers have the gradients of one worker with both batches."""

import os

import pytest
import torch
from fairseq.distributed import ModuleProxyWrapper
from torch import distributed
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from relumt.criterions.attention_regularization import AttentionRegularization
from tests.models.build import build, sample, task

BATCHES = [[(7, 5), (3, 8), (1, 2)], [(4, 4), (9, 3)]]


def compute_loss(model, lengths):
    criterion = AttentionRegularization(task(), False, 0.1, attention_entropy_bound=0.1)
    loss, size, _ = criterion(model, sample(lengths))
    return loss, size


def run_worker(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    model = build("reluformer").train()
    parallel = ModuleProxyWrapper(DistributedDataParallel(model))
    loss, size = compute_loss(parallel, BATCHES[rank])
    total = torch.tensor(float(size))
    distributed.all_reduce(total)
    (loss * 2 / total).backward()  # DDP averages over the workers; fairseq divides by the sum of sizes
    if rank == 0:
        torch.save({name: p.grad for name, p in model.named_parameters()}, os.path.join(folder, "gradients.pt"))
    distributed.destroy_process_group()


@pytest.mark.slow
def test_two_workers_compute_the_gradients_of_one(tmp_path):
    spawn(run_worker, (str(tmp_path),), nprocs=2)
    model = build("reluformer").train()
    losses, sizes = zip(*(compute_loss(model, lengths) for lengths in BATCHES), strict=True)
    (sum(losses) / sum(sizes)).backward()
    gradients = torch.load(tmp_path / "gradients.pt")
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(gradients[name], parameter.grad, rtol=1e-4, atol=1e-6)
