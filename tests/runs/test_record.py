import copy
import pickle

import pytest
import torch

from relumt.errors import UserError
from relumt.runs.provenance import differences, environment_fingerprint, training_fingerprint
from relumt.runs.record import load_record, open_for_training, save_record, trained_record, updates_so_far
from relumt.runs.run_config import plan_run
from tests.runs.cases import CPU, leave_checkpoint, write_data_bin


@pytest.fixture
def fingerprint(plan):
    return training_fingerprint(plan.train_flags([]), plan.data_bin, CPU)


def change(fingerprint, part, name, value):
    changed = copy.deepcopy(fingerprint)
    changed[part][name] = value
    return changed


def test_nothing_differs_from_itself_or_from_its_environment(plan, fingerprint):
    assert differences(fingerprint, fingerprint) == []
    assert differences(fingerprint, environment_fingerprint(plan.data_bin, CPU)) == []


@pytest.mark.parametrize(
    ("part", "name", "value", "phrase"),
    [
        ("flags", "--dropout", "0.5", "--dropout 0.1 (now --dropout 0.5)"),
        ("flags", "--patience", "3", "no --patience (now --patience 3)"),
        ("versions", "torch", "1.0", f"version torch {torch.__version__} (now 1.0)"),
        ("device", "precision", "bf16", "device precision fp32 (now bf16)"),
        ("revision", "dirty", "abc", "(now abc)"),
    ],
)
def test_every_part_is_compared_and_named(fingerprint, part, name, value, phrase):
    (found,) = differences(fingerprint, change(fingerprint, part, name, value))
    assert phrase in found


def test_another_commit_of_the_same_code_is_the_same(fingerprint):
    assert differences(fingerprint, change(fingerprint, "revision", "commit", "f" * 40)) == []


def test_a_flag_that_is_gone_is_named(fingerprint):
    now = copy.deepcopy(fingerprint)
    del now["flags"]["--lr"]
    assert differences(fingerprint, now) == ["--lr 1e-3 (now no --lr)"]


def test_what_left_no_checkpoint_begins_anew(plan, fingerprint):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, False))
    (plan.folder / "train.log").write_text("an attempt that failed at once")
    record = open_for_training(plan, change(fingerprint, "flags", "--lr", "9"), CPU, False)
    assert record["fingerprint"]["flags"]["--lr"] == "9" and record["mixed"] == []
    assert not (plan.folder / "train.log").exists()


def test_same_run_is_resumed_and_another_refused_or_recorded(plan, fingerprint):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, False) | {"training": {"updates": 1}})
    leave_checkpoint(plan)
    before = load_record(plan.folder)
    assert open_for_training(plan, fingerprint, CPU, False) == before
    other = change(fingerprint, "versions", "torch", "1.0")
    with pytest.raises(UserError, match=r"was made otherwise: version torch .* \(now 1.0\).*ACCEPT_MIXED=1"):
        open_for_training(plan, other, CPU, False)
    assert load_record(plan.folder) == before
    accepted = open_for_training(plan, other, CPU, True)
    assert accepted["fingerprint"] == other and "training" not in accepted
    assert accepted["mixed"][0]["was"] == [f"version torch {torch.__version__} (now 1.0)"]


def test_another_vocabulary_is_never_mixed(plan, fingerprint, configs, tmp_path):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, False))
    leave_checkpoint(plan)
    other = write_data_bin(tmp_path / "other", symbols=("x@@", "y"))
    other_plan = plan_run("small", "stock", 1, configs, tmp_path / "runs", other)
    with pytest.raises(UserError, match="a data-bin of another vocabulary"):
        open_for_training(other_plan, training_fingerprint({}, other_plan.data_bin, CPU), CPU, True)


def test_checkpoint_that_carries_code_is_not_resumed(plan, fingerprint):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, False))
    path = leave_checkpoint(plan, "checkpoint_last.pt")
    torch.save({"model": {}, "code": print}, path, pickle_module=pickle)
    with pytest.raises(UserError, match="carries code"):
        updates_so_far(plan)


def test_checkpoints_without_a_record_are_refused(plan, fingerprint):
    leave_checkpoint(plan)
    with pytest.raises(UserError, match=r"checkpoints without run\.json"):
        open_for_training(plan, fingerprint, CPU, True)


def test_broken_and_unfinished_records(plan, fingerprint):
    with pytest.raises(UserError, match=r"not trained to the end; run scripts/train\.sh small stock"):
        trained_record(plan)
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, False))
    with pytest.raises(UserError, match="not trained to the end"):
        trained_record(plan)
    (plan.folder / "run.json").write_text("{")
    with pytest.raises(UserError, match="not a run's record"):
        load_record(plan.folder)


def test_a_last_checkpoint_that_breaks_off_gives_way_to_what_it_was_copied_from(plan, fingerprint, capsys):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, accept_mixed=False))
    whole = leave_checkpoint(plan, "checkpoint_best.pt")
    last = plan.checkpoints / "checkpoint_last.pt"
    last.write_bytes(whole.read_bytes()[:200])
    assert updates_so_far(plan) == 6
    assert last.read_bytes() == whole.read_bytes()
    assert "checkpoint_last.pt: missing or broken off; going on from checkpoint_best.pt" in capsys.readouterr().err
    whole.unlink()
    last.write_bytes(b"")
    with pytest.raises(UserError, match="not a readable checkpoint"):
        updates_so_far(plan)


def test_other_sentences_under_the_same_vocabulary_are_refused(plan, fingerprint):
    save_record(plan.folder, open_for_training(plan, fingerprint, CPU, accept_mixed=False))
    leave_checkpoint(plan)
    (plan.data_bin.folder / "train.de-en.de.idx").write_bytes(b"others")
    other = training_fingerprint({}, plan.data_bin, CPU) | {"flags": fingerprint["flags"]}
    with pytest.raises(UserError, match=r"data train .* \(now "):
        open_for_training(plan, other, CPU, accept_mixed=False)
