"""Two processes compute what one process computes with the batches of both."""

import os
import random
from typing import ClassVar

import pytest
import torch
from fairseq import options
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.distributed import ModuleProxyWrapper
from fairseq.distributed import utils as distributed_utils
from fairseq.logging import metrics
from fairseq.logging.meters import AverageMeter
from fairseq.trainer import Trainer
from fairseq_cli import train
from torch import distributed
from torch.multiprocessing import spawn
from torch.nn.parallel import DistributedDataParallel

from relumt.attention import MECHANISMS
from relumt.attention.feedforward import FEEDFORWARDS
from tests.plugin.criterions.cases import regularized_criterion
from tests.plugin.model.build import build, sample, task, write_data_bin

MODELS = [("--attention", name) for name in MECHANISMS] + [("--feedforward", name) for name in FEEDFORWARDS]
BATCHES = [[(7, 5), (3, 8), (1, 2)], [(4, 4), (9, 3)]]

REGULARIZED = "--criterion label_smoothed_cross_entropy_with_attention_regularization --attention-entropy-bound 0.1"
PENALIZED = ("softmax", "sparsemax", "entmax15", "sigmoid", "relu_n", "relu", "relu_layernorm", "rela_g")
CASES = {
    "inhibitor": "--attention inhibitor",
    "entmax15 with gates": "--attention entmax15 --attention-gate headwise --feedforward swiglu",
    "rela_g regularized": f"--attention rela_g {REGULARIZED}",
    "relu in the encoder only, regularized": f"--attention-encoder relu {REGULARIZED}",
    "relu regularized, with schedule and margin": f"--attention relu {REGULARIZED} --attention-norm-penalty hinge "
    "--attention-norm-final-weight 0.01 --attention-schedule-updates 3",
    "relu regularized, loss per sentence": f"--attention relu --sentence-avg {REGULARIZED}",
    "relu regularized, statistics logged": f"--attention relu --log-attention-interval 1 {REGULARIZED}",
}
"""Name → flags."""

# A larger epsilon than Adam's default: a gradient that is 0 but for rounding must not decide about an update.
COMMON = """--arch mechanism_transformer --criterion label_smoothed_cross_entropy --label-smoothing 0.1 --dropout 0
--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-layers 1 --encoder-attention-heads 2
--decoder-layers 1 --decoder-attention-heads 2 --cpu --source-lang de --target-lang en
--optimizer adam --adam-eps 1e-4 --lr 1e-2 --clip-norm 0.5 --max-tokens 60 --max-epoch 2
--disable-validation --no-epoch-checkpoints --num-workers 0 --log-format none"""

SPEEDS = {"wps", "ups", "train_wall", "wall"}

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


class RecordingTrainer(Trainer):
    """Records its training.

    Attributes:
        updates: for each update, the logged values by name, in full precision.
        batches: for each update, the number of batches of this process that were not empty.
    """

    updates: ClassVar[list[dict[str, float]]] = []
    batches: ClassVar[list[int]] = []

    def train_step(self, samples, raise_oom=False):
        output = super().train_step(samples, raise_oom)
        meters = metrics.get_meters("train").items()
        self.updates.append({name: float(m.val) for name, m in meters if isinstance(m, AverageMeter)})
        self.batches.append(sum(bool(sample) for sample in samples))
        return output


def train_cases(rank, num_processes, folder):
    """Train the model of each case, and write what the trainer of the first process recorded, and the final weights.

    One process accumulates two batches per update, so that the updates have the same batches as with two processes.
    """
    torch.set_num_threads(1)
    train.Trainer = RecordingTrainer
    processes = f"""--distributed-init-method file://{folder}/rendezvous --distributed-world-size 2
    --distributed-no-spawn --distributed-backend gloo --ddp-backend legacy_ddp --distributed-rank {rank}"""
    results = {}
    for name, flags in CASES.items():
        save_dir = folder / "checkpoints" / name
        words = f"{COMMON} {processes if num_processes == 2 else '--update-freq 2'} {flags}".split()
        words = [str(folder), "--save-dir", str(save_dir), *words]
        config = convert_namespace_to_omegaconf(options.parse_args_and_arch(options.get_training_parser(), words))
        RecordingTrainer.updates, RecordingTrainer.batches = [], []
        distributed_utils.call_main(config, train.main)
        weights = torch.load(save_dir / "checkpoint_last.pt", weights_only=True)["model"]
        results[name] = {"updates": RecordingTrainer.updates, "batches": RecordingTrainer.batches, "weights": weights}
    if rank == 0:
        torch.save(results, folder / "results.pt")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """The results of all cases in one process and in two."""
    found = []
    for num_processes in (1, 2):
        folder, lengths = tmp_path_factory.mktemp("data"), random.Random(1)
        write_data_bin(folder, [(lengths.randint(1, 20), lengths.randint(1, 20)) for _ in range(36)], "train")
        spawn(train_cases, (num_processes, folder), nprocs=num_processes)
        found.append(torch.load(folder / "results.pt"))
    return found


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
