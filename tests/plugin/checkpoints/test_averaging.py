"""The average of checkpoints translates; a training goes on from a checkpoint of the same model only."""

import re
from argparse import Namespace

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from relumt.cli import main
from relumt.errors import UserError
from relumt.plugin.checkpoints.averaging import average_checkpoints, describe_differences, refuse_other_model
from relumt.plugin.checkpoints.folder import last_checkpoints
from relumt.plugin.options import VARIANT_CHOICES
from tests.plugin.model.build import sample, task, write_checkpoint


def checkpoint(**tensors):
    return {
        "model": {name: torch.tensor(value) for name, value in tensors.items()},
        "last_optimizer_state": 1,
        "cfg": {"model": {"arch": "reluformer"}, "task": {"_name": "translation"}},
    }


def test_floats_are_averaged_in_double_precision_and_integers_are_kept():
    contents = [checkpoint(w=[1.0, 2.0], n=3), checkpoint(w=[3.0, 6.0], n=5)]
    for content, value in zip(contents, (1.0, 3.0), strict=True):  # two names of one matrix
        content["model"]["embedding"] = content["model"]["output"] = torch.tensor([value], dtype=torch.float64)
        content["model"]["half"] = torch.tensor([4e4], dtype=torch.float16)  # whose sum is out of range
    averaged = average_checkpoints(zip("ab", contents, strict=True))
    found = {name: tensor.tolist() for name, tensor in averaged["model"].items()}
    assert found == {"w": [2.0, 4.0], "n": 3, "embedding": [2.0], "output": [2.0], "half": [4e4]}
    assert averaged["cfg"]["model"] == {"arch": "reluformer"} and "last_optimizer_state" not in averaged


DIFFERENT = {
    "parameters of other shapes": lambda content: content["model"].update(w=torch.ones(2)),
    "--seed 1 (now 7)": lambda content: content["cfg"].update(common={"seed": 7}),
    "attention at the site 'encoder' softmax (now relu)": lambda content: content["cfg"]["model"].update(
        attention="relu"
    ),
}


@pytest.mark.parametrize("difference", DIFFERENT)
def test_another_training_is_rejected(difference):
    contents = [checkpoint(w=[1.0]) for _ in range(2)]
    for content in contents:
        content["cfg"]["common"] = {"seed": 1}
    average_checkpoints(zip("ab", contents, strict=True))
    DIFFERENT[difference](contents[1])
    with pytest.raises(UserError, match=f"b: differs from a: .*{re.escape(difference)}.*; average checkpoints of one"):
        average_checkpoints(zip("ab", contents, strict=True))


def test_no_update_counts_twice():
    """checkpoint_last.pt has the weights of the last numbered checkpoint."""
    contents = [checkpoint(w=[1.0]) | {"optimizer_history": [{"num_updates": updates}]} for updates in (10, 20, 20)]
    with pytest.raises(UserError, match="c and b were both saved after 20 updates; give one of them"):
        average_checkpoints(zip("abc", contents, strict=True))
    average = average_checkpoints(zip("ab", contents[:2], strict=True))
    with pytest.raises(UserError, match="b: is an average; give the checkpoints that training saved"):
        average_checkpoints([("a", contents[2]), ("b", average)])


def test_trained_activations_are_averaged_and_the_result_loads(tmp_path):
    paths = [write_checkpoint(tmp_path / name, "--feedforward", "aptx1") for name in ("a", "b")]
    changed = torch.load(paths[1], weights_only=True)
    changed["model"]["encoder.layers.0.activation_fn.beta"] += 1
    changed["optimizer_history"][-1]["num_updates"] += 1
    torch.save(changed, paths[1])
    out = tmp_path / "average.pt"
    main(["average", *map(str, paths), "--out", str(out)])
    (model,), _ = load_model_ensemble([str(out)], task=task())
    assert model.encoder.layers[0].activation_fn.beta.item() == pytest.approx(1.5)
    assert model.encoder.layers[1].activation_fn.beta.item() == pytest.approx(1)
    assert model.eval()(**sample([(3, 4)])["net_input"])[0].isfinite().all()


@pytest.mark.parametrize(
    ("names", "last"),
    [
        (["checkpoint_1_500", "checkpoint_2_1500", "checkpoint_2_1000"], ["checkpoint_2_1000", "checkpoint_2_1500"]),
        (["checkpoint9", "checkpoint10", "checkpoint8"], ["checkpoint9", "checkpoint10"]),
        (["checkpoint1", "checkpoint_1_500", "checkpoint_1_900"], ["checkpoint_1_500", "checkpoint_1_900"]),
    ],
)
def test_the_last_checkpoints_are_the_last_by_updates_or_by_epochs(tmp_path, names, last):
    for name in (*names, "checkpoint_best", "checkpoint_last", "checkpoint_average_2", "checkpoint.best_bleu_3"):
        (tmp_path / f"{name}.pt").touch()
    assert [path.stem for path in last_checkpoints(tmp_path, 2)] == last
    with pytest.raises(UserError, match=r"expected at least 4 numbered checkpoints to average, found [23]"):
        last_checkpoints(tmp_path, 4)


def difference(stored: dict, requested: dict) -> str:
    return ", ".join(describe_differences(Namespace(**stored), Namespace(**requested)).values())


@pytest.mark.parametrize("choice", VARIANT_CHOICES, ids=lambda choice: choice.name)
def test_another_variant_is_noticed_at_any_site(choice):
    for site in choice.sites:
        for name in choice.registry.keys() - {choice.default}:
            settings = {f"{choice.name}_{site}": name}
            noticed = f"{choice.name} at the site '{site}' {name} (now {choice.default})"
            assert (difference(settings, settings), difference(settings, {})) == ("", noticed)
            everywhere = {choice.name: name} | dict.fromkeys((f"{choice.name}_{other}" for other in choice.sites), name)
            assert difference(everywhere, {choice.name: name}) == ""


RELU, INHIBITOR = {"attention": "relu"}, {"attention": "inhibitor"}


@pytest.mark.parametrize(
    ("common", "old", "new", "expected"),
    [
        ({}, {"encoder_attention_heads": 2}, {"encoder_attention_heads": 4}, "--encoder-attention-heads 2 (now 4)"),
        ({}, {"activation_fn": "relu"}, {"activation_fn": "gelu"}, "--activation-fn relu (now gelu)"),
        (
            {},
            {"attention_qk_norm": "constant"},
            {"attention_qk_norm": "log_n"},
            "--attention-qk-norm constant (now log_n)",
        ),
        ({}, {"dropout": 0.1}, {"dropout": 0.3}, ""),
        ({}, {"relu_gamma": 1.0}, {"relu_gamma": 2.0}, ""),
        (RELU, {"relu_gamma": 1.0}, {"relu_gamma": 2.0}, "--relu-gamma 1.0 (now 2.0)"),
        (RELU, {}, {"relu_gamma": 2.0}, ""),  # an older version did not store it
        (RELU, {"relu_initial_score": 0.1}, {"relu_initial_score": 0.2}, ""),
        (INHIBITOR, {"inhibitor_shift": 0.5}, {"inhibitor_shift": 1.0}, "--inhibitor-shift 0.5 (now 1.0)"),
        (INHIBITOR, {"inhibitor_implementation": "fused"}, {"inhibitor_implementation": "naive"}, ""),
    ],
)
def test_settings_that_change_what_weights_compute_are_noticed(common, old, new, expected):
    assert difference(common | old, common | new) == expected


def test_a_new_training_needs_only_the_same_vocabulary():
    stored, requested = (Namespace(vocabulary_fingerprint=digit * 12) for digit in "ab")
    for is_new_training in (True, False):
        with pytest.raises(UserError, match=r"x.pt: was trained with another vocabulary; prepare the data with its"):
            refuse_other_model(stored, requested, "x.pt", is_new_training)
    requested = Namespace(vocabulary_fingerprint="a" * 12, attention="relu")
    refuse_other_model(stored, requested, "x.pt", is_new_training=True)
    with pytest.raises(UserError, match=r"x.pt: belongs to another model, with attention at the site 'encoder' so"):
        refuse_other_model(stored, requested, "x.pt")
