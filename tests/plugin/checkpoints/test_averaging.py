"""The average of checkpoints is the mean of their parameters, and translates."""

import pytest
import torch
from fairseq.checkpoint_utils import load_model_ensemble

from relumt.cli import main
from relumt.errors import UserError
from relumt.plugin.checkpoints.averaging import average_checkpoints
from relumt.plugin.checkpoints.folder import last_checkpoints
from tests.plugin.model.build import sample, task, write_checkpoint


def checkpoint(**tensors):
    return {
        "model": {name: torch.tensor(value) for name, value in tensors.items()},
        "last_optimizer_state": 1,
        "cfg": {"model": {"arch": "reluformer"}, "task": {"_name": "translation"}},
    }


def test_floats_are_averaged_and_integers_are_kept():
    averaged = average_checkpoints([("a", checkpoint(w=[1.0, 2.0], n=3)), ("b", checkpoint(w=[3.0, 6.0], n=5))])
    assert averaged["model"]["w"].tolist() == [2.0, 4.0]
    assert averaged["model"]["n"].item() == 3
    assert averaged["cfg"]["model"] == {"arch": "reluformer"} and "last_optimizer_state" not in averaged


def test_tied_matrices_in_double_precision_are_averaged():
    checkpoints = []
    for name, value in (("a", 1.0), ("b", 3.0)):
        matrix = torch.tensor([value], dtype=torch.float64)
        checkpoints.append((name, checkpoint() | {"model": {"embedding": matrix, "output": matrix}}))
    averaged = average_checkpoints(checkpoints)["model"]
    assert averaged["embedding"].item() == averaged["output"].item() == 2


def test_other_parameters_are_rejected():
    with pytest.raises(UserError, match="b: differs from a in its parameters"):
        average_checkpoints([("a", checkpoint(w=[1.0])), ("b", checkpoint(w=[1.0, 2.0]))])


def test_checkpoints_of_two_seeds_are_rejected():
    checkpoints = [(name, checkpoint(w=[1.0])) for name in ("a", "b")]
    for (_, content), seed in zip(checkpoints, (1, 7), strict=True):
        content["cfg"]["common"] = {"seed": seed}
    with pytest.raises(UserError, match="b: differs from a in its seed: 7; average checkpoints of one"):
        average_checkpoints(checkpoints)


def test_checkpoints_of_two_criterions_are_rejected():
    checkpoints = [(name, checkpoint(w=[1.0])) for name in ("a", "b")]
    for (_, content), smoothing in zip(checkpoints, (0.1, 0.2), strict=True):
        content["cfg"]["criterion"] = {"_name": "label_smoothed_cross_entropy", "label_smoothing": smoothing}
    with pytest.raises(UserError, match=r"b: differs from a in its criterion: label_smoothing 0.1 \(now 0.2"):
        average_checkpoints(checkpoints)
    del checkpoints[1][1]["cfg"]["criterion"]["label_smoothing"]  # as in checkpoints of older versions
    average_checkpoints(checkpoints)


def test_no_update_counts_twice():
    """checkpoint_last.pt has the weights of the last numbered checkpoint."""
    contents = [checkpoint(w=[1.0]) | {"optimizer_history": [{"num_updates": updates}]} for updates in (10, 20, 20)]
    with pytest.raises(UserError, match="c and b were both saved after 20 updates; give one of them"):
        average_checkpoints(zip("abc", contents, strict=True))
    average = average_checkpoints(zip("ab", contents[:2], strict=True))
    with pytest.raises(UserError, match="b: is an average; give the checkpoints that training saved"):
        average_checkpoints([("a", contents[2]), ("b", average)])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("position", [0, 1])
def test_checkpoints_of_a_diverged_training_are_not_averaged(value, position):
    checkpoints = [("a", checkpoint(w=[1.0], n=3, v=[1.0, 2.0])), ("b", checkpoint(w=[1.0], n=3, v=[1.0, 2.0]))]
    checkpoints[position][1]["model"]["v"][1] = value
    with pytest.raises(UserError, match=f"{'ab'[position]}: its parameter v is infinite or NaN, since training diver"):
        average_checkpoints(checkpoints)


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


def test_another_mechanism_with_the_same_shapes_is_rejected():
    one, other = checkpoint(w=[1.0]), checkpoint(w=[2.0])
    other["cfg"]["model"] |= {"attention": "relu"}
    with pytest.raises(UserError, match="y: differs from x in its model"):
        average_checkpoints([("x", one), ("y", other)])


@pytest.mark.parametrize(
    ("checkpoints", "out", "message"),
    [
        (["a.pt"], "out.pt", "a.pt: not a readable checkpoint"),
        (["b.pt"], "a.pt", "a.pt: exists; choose another --out, or remove the file"),
    ],
)
def test_invalid_paths_are_rejected_and_nothing_is_written(tmp_path, monkeypatch, capsys, checkpoints, out, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.pt").write_text("text")
    with pytest.raises(SystemExit) as stopped:
        main(["average", "--out", out, *checkpoints])
    assert stopped.value.code == 2 and message in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.pt"]
