"""Two processes compute what one process computes with the batches of both."""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.distributed import ModuleProxyWrapper
from torch import distributed
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from relumt.attention import MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from tests.plugin.criterions.cases import regularized_criterion
from tests.plugin.criterions.train_cases import CASES, PENALIZED, SPEEDS
from tests.plugin.model.build import build, sample, task, write_data_bin

ROOT = Path(__file__).resolve().parents[3]
MODELS = [("--attention", name) for name in MECHANISMS] + [("--feedforward", name) for name in FEEDFORWARDS]
BATCHES = [[(7, 5), (3, 8), (1, 2)], [(4, 4), (9, 3)]]

pytestmark = pytest.mark.slow


def compute_loss(model, name, lengths):
    if name in PENALIZED or name in FEEDFORWARDS:
        criterion = regularized_criterion(attention_entropy_bound=0.1)
    else:
        criterion = LabelSmoothedCrossEntropyCriterion(task(), False, 0.1)
    loss, size, _ = criterion(model, sample(lengths))
    return loss, size


def build_model(flag, name):
    return build("mechanism_transformer", flag, name, "--encoder-layers", "1", "--decoder-layers", "1").train()


def compute_gradients(rank, folder):
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    gradients = {}
    for flag, name in MODELS:
        model = build_model(flag, name)
        parallel = ModuleProxyWrapper(DistributedDataParallel(model))
        for _ in range(2):  # the second forward pass fails if the first left a parameter without a gradient
            model.zero_grad()
            loss, size = compute_loss(parallel, name, BATCHES[rank])
            total = torch.tensor(float(size))
            distributed.all_reduce(total)
            (loss * 2 / total).backward()  # DDP averages over the processes; fairseq divides by the sum of sizes
        gradients[flag, name] = {name: p.grad for name, p in model.named_parameters()}
    if rank == 0:
        torch.save(gradients, os.path.join(folder, "gradients.pt"))
    distributed.destroy_process_group()


def test_every_model_has_the_gradients_of_one_process(tmp_path):
    """PyTorch's DistributedDataParallel is fairseq's default for several GPUs."""
    spawn(compute_gradients, (str(tmp_path),), nprocs=2)
    parallel = torch.load(tmp_path / "gradients.pt")
    for flag, name in MODELS:
        model = build_model(flag, name)
        losses, sizes = zip(*(compute_loss(model, name, lengths) for lengths in BATCHES), strict=True)
        (sum(losses) / sum(sizes)).backward()
        for parameter_name, parameter in model.named_parameters():
            gradient = parallel[flag, name][parameter_name]
            torch.testing.assert_close(gradient, parameter.grad, rtol=1e-4, atol=1e-6, msg=f"{name}: {parameter_name}")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of all cases in one process and in two."""
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    processes = []
    for words in ([], torchrun):
        folder = tmp_path_factory.mktemp("data")
        lengths = random.Random(1)
        write_data_bin(folder, [(lengths.randint(1, 20), lengths.randint(1, 20)) for _ in range(36)], "train")
        command = [sys.executable, *words, "-m", "tests.plugin.criterions.train_cases", str(folder)]
        settings = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
        with (folder / "output").open("w") as output:
            started = subprocess.Popen(command, cwd=ROOT, env=settings, stdout=output, stderr=subprocess.STDOUT)
        processes.append((started, folder))
    for process, folder in processes:
        assert process.wait(timeout=1200) == 0, (folder / "output").read_text()[-5000:]
    return [torch.load(folder / "results.pt") for _, folder in processes]


@pytest.mark.parametrize("name", CASES)
def test_two_processes_train_as_one_with_the_same_global_batch(results, name):
    one, two = (result[name] for result in results)
    assert len(one["updates"]) == len(two["updates"]) == 12
    assert one["batches"].count(1) == 2, "the last update of an epoch should have a batch for one process only"
    for expected, found in zip(one["updates"], two["updates"], strict=True):
        assert {"loss", "gnorm"} <= expected.keys() == found.keys()
        for value in expected.keys() - SPEEDS:
            assert found[value] == pytest.approx(expected[value], rel=1e-5, abs=1e-7), value
    assert one["weights"].keys() == two["weights"].keys()
    for weight, expected in one["weights"].items():
        torch.testing.assert_close(two["weights"][weight], expected, rtol=1e-5, atol=1e-7, msg=weight)
