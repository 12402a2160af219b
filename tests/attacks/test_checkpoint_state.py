"""Checkpoints with odd weights or training states are refused; without a training state they only translate."""

from pathlib import Path

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble_and_task

from relumt.checkpoints.loading import count_updates, load_checkpoint_safely
from relumt.checkpoints.vetting import vet_checkpoint
from tests.attacks.checkpoint_cases import refuse, saved
from tests.models.build import sample

pytestmark = pytest.mark.attack("checkpoints")

ODD_STATES = {
    "optimizer_history": [
        *(5, "x", {}, [5], [{}], [{"num_updates": -1}], [{"num_updates": 2.5}], [{"num_updates": 2**60}]),
        *([{"num_updates": None}], [{"num_updates": "6"}], [{"num_updates": True}], [{"num_updates": torch.ones(1)}]),
        *([{"num_updates": 1, "lr_scheduler_state": 5}], [{"num_updates": 1, "optimizer_name": ["x"]}]),
    ],
    "extra_state": [
        *(5, [], "x", {"train_iterator": 5}, {"train_iterator": {}}, {"train_iterator": {"epoch": "1"}}),
        *({"train_iterator": {"epoch": -1}}, {"train_iterator": {"epoch": 1, "iterations_in_epoch": 2.5}}),
        {"train_iterator": {"epoch": 1}, "metrics": 5},
        {"train_iterator": {"epoch": 1}, "metrics": {"default": [(1, "x", "MetersDict", {})]}},
        {"train_iterator": {"epoch": 1}, "metrics": {"default": [(1, "x", "os", {})]}},
        {"train_iterator": {"epoch": 1}, "metrics": {"default": [(1, "x")]}},
        {"train_iterator": {"epoch": 1}, "previous_training_time": "x"},
        *({"train_iterator": {"epoch": 1}, "val_loss": loss} for loss in ("x", torch.ones(2))),
        *({"train_iterator": {"epoch": 1}, "best": loss} for loss in ("x", torch.ones(2))),
    ],
    "last_optimizer_state": [5, [], "x", {1: 2}],
    "task_state": [5, "x"],
    "criterion": [5, {"weight": 5}],
}


@pytest.mark.parametrize("name", ODD_STATES)
def test_odd_training_states_are_refused(attack, intact, name):
    for value in ODD_STATES[name]:
        refuse(attack, intact | {name: value})


@pytest.mark.parametrize("name", ["optimizer_history", "extra_state", "last_optimizer_state"])
def test_without_a_training_state_a_checkpoint_translates_but_does_not_resume(attack, intact, data_bin, name):
    assert not attack.reads(vet_checkpoint, intact | {name: None}, "odd.pt")
    torch.save({entry: value for entry, value in intact.items() if entry != name}, "stripped.pt")
    checkpoint = load_checkpoint_safely("stripped.pt")
    assert f"training cannot resume from it, since it has no {name}" in attack.reads(
        count_updates, checkpoint, Path("stripped.pt")
    )
    (model,), _, _ = load_model_ensemble_and_task(["stripped.pt"], arg_overrides={"data": str(data_bin)})
    assert model.eval()(**sample([(3, 4)])["net_input"])[0].isfinite().all()


def test_checkpoints_without_settings_are_refused(attack, intact):
    for settings in ({"cfg": None}, {"cfg": 5}, {"cfg": {}}, {"cfg": {"model": 5}}, {"args": "x"}, {"args": 5}):
        refuse(attack, intact | settings)


def test_weights_that_are_no_ordinary_tensors_are_refused(attack, intact):
    odd = {
        "sparse": torch.eye(3).to_sparse(),
        "csr": torch.eye(3).to_sparse_csr(),
        "meta": torch.empty(3, device="meta"),
        "huge": torch.zeros(1).expand(10**6, 10**6),
        "overlap": torch.zeros(9).as_strided((9, 9), (0, 1)),
        "complex": torch.zeros(3, dtype=torch.complex64),
        "quantized": torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8),
        "number": 1.0,
        "None": None,
        "list": [torch.zeros(3)],
        "dictionary": {"a": torch.zeros(3)},
    }
    for value in odd.values():
        content = intact | {"model": intact["model"] | {"encoder.version": value}}
        refuse(attack, content)
        assert attack.reads(load_checkpoint_safely, saved(content))


def test_weights_that_are_no_dictionary_are_refused(attack, intact):
    for weights in (None, 5, [], "x", {5: torch.zeros(1)}, {None: torch.zeros(1)}):
        refuse(attack, intact | {"model": weights})
