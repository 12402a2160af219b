"""Training in fp16 and bf16 resumes exactly, because master weights and the loss scaler's state are saved."""

import pytest
import torch
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.optim.fp16_optimizer import FP16Optimizer as StockFP16Optimizer
from fairseq.trainer import Trainer

from relumt.plugin.checkpoints.half_precision import MASTER_WEIGHTS, SCALER
from relumt.plugin.checkpoints.recovery import save_checkpoint_durably
from tests.plugin.model.build import arguments, sample, task

FLAGS = """--arch transformer --source-lang de --target-lang en --cpu --optimizer adam --lr 1e-3 --dropout 0.1
--fp16-init-scale 4 --fp16-scale-window 3""".split()


@pytest.fixture(
    params=["bf16, flat", "fp16", *(pytest.param(x, marks=pytest.mark.slow) for x in ("bf16", "fp16, flat"))]
)
def precision(request, monkeypatch) -> str:
    """Precision, and whether all master weights are in one tensor, as on a GPU."""
    if "flat" in request.param:
        monkeypatch.setattr(torch.cuda, "current_device", lambda: None)  # the index of the device "cpu"
    return request.param


def build_trainer(precision: str) -> Trainer:
    """Build a trainer on the CPU, where relumt's own models refuse low precision."""
    torch.manual_seed(1)
    config = convert_namespace_to_omegaconf(arguments(*FLAGS))
    translation = task()
    model = translation.build_model(config.model)
    config.common.bf16 = precision.startswith("bf16")
    config.common.fp16 = precision.startswith("fp16")
    config.common.fp16_no_flatten_grads = "flat" not in precision
    return Trainer(config, translation, model, translation.build_criterion(config.criterion))


def train(trainer: Trainer, updates: range) -> Trainer:
    trainer.begin_epoch(1)
    for update in updates:
        trainer.train_step([sample([(5, 6), (4, 3)], seed=update)])
    return trainer


def save(trainer: Trainer, path) -> str:
    trainer.consolidate_optimizer()
    trainer.save_checkpoint(str(path), {"train_iterator": {"epoch": 1, "iterations_in_epoch": 1, "version": 2}})
    return str(path)


def state(trainer: Trainer) -> list[torch.Tensor]:
    """Everything that decides how training goes on."""
    optimizer = trainer.optimizer
    moments = [value for entry in optimizer.optimizer.state_dict()["state"].values() for value in entry.values()]
    scaler = vars(optimizer.scaler).values() if optimizer.scaler else []
    masters = optimizer.fp32_params
    masters = list(masters.values()) if isinstance(masters, dict) else masters
    tensors = [*trainer.model.state_dict().values(), *masters, *moments, *(value or 0 for value in scaler)]
    return [torch.as_tensor(value).detach().clone() for value in tensors]


def are_equal(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(one) == len(other) and all(map(torch.equal, one, other))


def test_resuming_is_exact_with_the_additional_state_alone(tmp_path, precision):
    path = tmp_path / "checkpoint.pt"
    undisturbed = train(build_trainer(precision), range(5))
    save(undisturbed, path)
    train(undisturbed, range(5, 8))
    if precision.startswith("fp16"):
        assert undisturbed.optimizer.scaler.loss_scale > 4, "the test should cover a change of the loss scale"

    resumed = build_trainer(precision)
    resumed.load_checkpoint(str(path))
    train(resumed, range(5, 8))
    assert resumed.get_num_updates() == undisturbed.get_num_updates() == 8
    assert are_equal(state(resumed), state(undisturbed))

    checkpoint = torch.load(path, weights_only=True)
    for key in (MASTER_WEIGHTS, SCALER):
        checkpoint["last_optimizer_state"].pop(key, None)
    save_checkpoint_durably(checkpoint, path)
    resumed = build_trainer(precision)
    resumed.load_checkpoint(str(path))  # as checkpoints of stock fairseq load
    train(resumed, range(5, 8))
    assert resumed.get_num_updates() == 8
    assert not are_equal(state(resumed), state(undisturbed))


# In bf16 stock fairseq has a tensor for each weight.
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp16, flat"], indirect=True)
def test_stock_fairseq_reads_the_state(tmp_path, precision, monkeypatch):
    path = save(train(build_trainer(precision), range(2)), tmp_path / "checkpoint.pt")
    monkeypatch.setattr("fairseq.optim.FP16Optimizer", StockFP16Optimizer)
    stock = build_trainer(precision)
    stock.load_checkpoint(path)
    assert type(stock.optimizer) is StockFP16Optimizer and stock.get_num_updates() == 2
    train(stock, range(2, 3))


def test_one_tensor_trains_as_many_do_and_takes_over_their_state(tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "current_device", lambda: None)
    many = train(build_trainer("bf16"), range(3))
    path = save(many, tmp_path / "checkpoint.pt")
    one = build_trainer("bf16, flat")
    one.load_checkpoint(path)
    for trainer in (many, one):
        train(trainer, range(3, 6))
    assert isinstance(one.optimizer.fp32_params, dict) and isinstance(many.optimizer.fp32_params, list)
    assert are_equal(list(one.model.state_dict().values()), list(many.model.state_dict().values()))
    masters = torch.cat([weights.flatten() for weights in many.optimizer.fp32_params])
    torch.testing.assert_close(next(iter(one.optimizer.fp32_params.values())), masters, atol=1e-6, rtol=1e-6)
