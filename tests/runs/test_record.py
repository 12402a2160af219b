import json
import pickle
from dataclasses import replace

import pytest
import torch

from relumt.errors import UserError
from relumt.runs.environment import Device, Kernels, installed_version
from relumt.runs.evaluation_record import DocumentResults, ExternalScore, SubsetScores
from relumt.runs.provenance import environment_differences, provenance_differences, training_provenance
from relumt.runs.record import (
    Divergence,
    EnvironmentChange,
    TrainingSummary,
    find_record,
    load_record,
    save_record,
)
from relumt.runs.run_checkpoints import recover_checkpoints
from relumt.runs.run_config import resolve_run_config
from relumt.runs.training_results import trained_record
from relumt.runs.training_steps import open_record
from tests.runs.cases import CPU, scored_record, with_value, write_checkpoint, write_data_bin

SUMMARY = TrainingSummary(1000, 640.2, 10.0, 6, 1, None)


@pytest.fixture
def provenance(config):
    return training_provenance(config.train_flags([]), config.data_bin, CPU)


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = scored_record()
    scored = record.test_evaluation
    documents = DocumentResults(3, 2, 1, True, scored.scores)
    subsets = {"short": SubsetScores(2, scored.scores)}
    record = replace(
        record,
        environment_changes=[EnvironmentChange("2026-01-02", ["device name A (now B)"])],
        divergence=Divergence(3, "gradients are Nan/Inf: ∞"),
        pending_evaluation=scored.setup,
        evaluations={
            "test": replace(scored, documents=documents, scored_files={"bleu_tokenized": ("h", "r")}),
            "valid": replace(scored, setup=replace(scored.setup, subset="valid"), subsets=subsets),
        },
    )
    save_record(tmp_path, record)
    assert load_record(tmp_path) == record
    assert json.loads((tmp_path / "run.json").read_text())["schema"] == 1


def test_a_record_without_the_backend_of_products_had_the_default(tmp_path):
    """Records of earlier versions; they never changed PyTorch's default."""
    record = scored_record()
    save_record(tmp_path, record)
    old = json.loads((tmp_path / "run.json").read_text())
    for environment in (old["provenance"]["environment"], old["evaluations"]["test"]["setup"]["environment"]):
        assert environment["device"].pop("fp32_backend") == "default"
    (tmp_path / "run.json").write_text(json.dumps(old))
    assert load_record(tmp_path) == record


def test_the_kernels_of_attention_are_recorded_and_unknown_in_earlier_records(tmp_path, config, monkeypatch):
    monkeypatch.setenv("RELUMT_KERNELS", "reference")
    recorded = training_provenance(config.train_flags([]), config.data_bin, CPU)
    save_record(tmp_path, replace(scored_record(), provenance=recorded))
    written = json.loads((tmp_path / "run.json").read_text())
    kernels = written["provenance"]["environment"].pop("kernels")
    assert kernels == {"setting": "reference", "triton": installed_version("triton")}
    (tmp_path / "run.json").write_text(json.dumps(written))
    old = load_record(tmp_path).provenance
    assert old.environment.kernels is None
    assert provenance_differences(old, recorded) == []


@pytest.mark.parametrize(
    ("kind", "setting", "is_difference"),
    [("cuda", "auto", True), ("cuda", "reference", False), ("cpu", "auto", False), ("cpu", "fused", True)],
)
def test_triton_counts_where_its_kernels_may_run(provenance, kind, setting, is_difference):
    before = with_value(provenance, "environment.device.kind", kind)
    before = with_value(before, "environment.kernels", Kernels(setting, "3.7.1"))
    for version, phrase in (("3.9.0", "kernels triton 3.7.1 (now 3.9.0)"), (None, "kernels triton 3.7.1 (now none)")):
        after = with_value(before, "environment.kernels.triton", version)
        assert provenance_differences(before, after) == ([phrase] if is_difference else [])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (
            "provenance.environment.kernels",
            {"setting": "fast", "triton": None},
            r"Invalid enum value 'fast' - at `\$.provenance.environment.kernels.setting`",
        ),
        (
            "provenance.environment.device.fp32_backend",
            "other",
            r"Invalid enum value 'other' - at `\$.provenance.environment.device.fp32_backend`",
        ),
        (
            "seed",
            "1",
            r"not in the expected format \(Expected `int`, got `str` - at `\$.seed`\); restore it: cp .*run\.json\.bak",
        ),
        (
            "provenance.environment.device",
            None,
            r"Expected `object`, got `null` - at `\$.provenance.*device`",
        ),
        ("evaluations.test", {}, r"Object missing required field `setup` - at `\$.evaluations\[...\]`"),
        (
            "schema",
            None,
            r"written by an older relumt \(no schema\), expected schema 1; retrain",
        ),
        ("schema", 2, r"written by another relumt \(schema 2\), expected schema 1"),
    ],
)
def test_an_invalid_field_is_named(tmp_path, path, value, message):
    save_record(tmp_path, scored_record())
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(with_value(record, path, value)))
    with pytest.raises(UserError, match=rf"run\.json.*{message}") as refused:
        find_record(tmp_path)
    assert "\n" not in str(refused.value)


def test_broken_and_missing_files_are_refused(tmp_path):
    assert find_record(tmp_path) is None
    with pytest.raises(UserError, match=r"run\.json: no such file; train with scripts/train\.sh"):
        load_record(tmp_path)
    for text in (b"{", b"[]", b"\xff", b""):
        (tmp_path / "run.json").write_bytes(text)
        with pytest.raises(UserError, match=r"set RUNS to another folder .* need not be deleted"):
            load_record(tmp_path)


def test_equal_provenance_has_no_differences(provenance):
    assert provenance_differences(provenance, provenance) == []
    environment = replace(provenance.environment, device=Device("cpu", "x86_64", 1, "fp32"))
    assert environment_differences(provenance.environment, environment) == []


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("flags.--lr", "2", "--lr 1e-3 (now --lr 2)"),
        ("flags.--new", "", "no --new (now --new)"),
        ("data.train", "d", "(now d)"),
        ("initialization.dataset", "other", "initialization dataset none (now other)"),
        ("environment.versions.torch", "1.0", f"version torch {installed_version('torch')} (now 1.0)"),
        ("environment.revision.code", "abc", "(now abc)"),
        ("environment.revision.dirty", "abc", "(now abc)"),
        ("environment.device.name", "H100", "device name x86_64 (now H100)"),
        ("environment.device.count", 2, "device count 1 (now 2)"),
        ("environment.device.precision", "bf16", "device precision fp32 (now bf16)"),
        ("environment.device.fp32_backend", "onednn", "device fp32_backend default (now onednn)"),
        ("environment.kernels.setting", "reference", "kernels setting auto (now reference)"),
    ],
)
def test_every_difference_is_named(provenance, path, value, phrase):
    (difference,) = provenance_differences(provenance, with_value(provenance, path, value))
    assert phrase in difference


def test_another_commit_of_the_same_code_makes_no_difference(provenance):
    other = with_value(provenance, "environment.revision.commit", "f" * 40)
    assert provenance_differences(provenance, other) == []


def test_a_removed_flag_is_named(provenance):
    flags = {name: value for name, value in provenance.flags.items() if name != "--lr"}
    assert provenance_differences(provenance, replace(provenance, flags=flags)) == ["--lr 1e-3 (now no --lr)"]


def test_a_run_without_checkpoints_starts_over(config, provenance):
    save_record(config.folder, open_record(config, provenance, accept_changes=False))
    record = open_record(config, with_value(provenance, "flags.--lr", "9"), accept_changes=False)
    assert record.provenance.flags["--lr"] == "9" and record.environment_changes == []


def test_another_provenance_is_refused_or_recorded(config, provenance):
    save_record(config.folder, replace(open_record(config, provenance, accept_changes=False), training=SUMMARY))
    write_checkpoint(config)
    before = load_record(config.folder)
    assert open_record(config, provenance, accept_changes=False) == before
    other = with_value(provenance, "environment.versions.torch", "1.0")
    message = r"was created with different settings: version torch .* \(now 1.0\).*ACCEPT_MIXED=1"
    with pytest.raises(UserError, match=message):
        open_record(config, other, accept_changes=False)
    assert load_record(config.folder) == before
    save_record(config.folder, replace(before, training=None))
    accepted = open_record(config, other, accept_changes=True)
    assert accepted.provenance == other
    assert accepted.environment_changes[0].differences == [f"version torch {installed_version('torch')} (now 1.0)"]


def test_a_finished_training_stays_that_of_its_environment(config, provenance):
    save_record(config.folder, replace(open_record(config, provenance, accept_changes=False), training=SUMMARY))
    before = load_record(config.folder)
    other = with_value(provenance, "environment.versions.torch", "1.0")
    assert open_record(config, other, accept_changes=True) == before  # without checkpoints
    write_checkpoint(config)
    assert open_record(config, other, accept_changes=True) == before
    longer = with_value(other, "flags.--lr", "9")
    assert open_record(config, longer, accept_changes=True).training is None


def test_a_finished_run_without_checkpoints_cannot_continue_with_other_flags(config, provenance):
    save_record(config.folder, replace(open_record(config, provenance, accept_changes=False), training=SUMMARY))
    with pytest.raises(UserError, match=r"checkpoints were deleted, so it cannot continue with other settings: --lr"):
        open_record(config, with_value(provenance, "flags.--lr", "9"), accept_changes=True)


def test_another_vocabulary_is_refused_even_if_changes_are_accepted(config, provenance, configs, tmp_path):
    save_record(config.folder, open_record(config, provenance, accept_changes=False))
    write_checkpoint(config)
    other = write_data_bin(tmp_path / "other", symbols=("x@@", "y"))
    other_plan = resolve_run_config("small", "stock", 1, configs, tmp_path / "runs", other)
    with pytest.raises(UserError, match="its vocabulary is not the one"):
        open_record(other_plan, training_provenance({}, other_plan.data_bin, CPU), accept_changes=True)


def test_other_sentences_under_the_same_vocabulary_are_refused(config, provenance):
    save_record(config.folder, open_record(config, provenance, accept_changes=False))
    write_checkpoint(config)
    (config.data_bin.folder / "train.de-en.de.idx").write_bytes(b"others")
    other = replace(training_provenance({}, config.data_bin, CPU), flags=provenance.flags)
    with pytest.raises(UserError, match=r"data train .* \(now "):
        open_record(config, other, accept_changes=False)


def test_checkpoints_without_a_record_are_refused(config, provenance):
    write_checkpoint(config)
    with pytest.raises(UserError, match=r"checkpoints without run\.json"):
        open_record(config, provenance, accept_changes=True)


def test_an_unfinished_training_is_refused(config, provenance):
    message = r"training is not finished; run scripts/train\.sh small stock"
    with pytest.raises(UserError, match=message):
        trained_record(config)
    save_record(config.folder, open_record(config, provenance, accept_changes=False))
    with pytest.raises(UserError, match=message):
        trained_record(config)


def test_a_checkpoint_that_contains_code_is_not_resumed(config):
    path = write_checkpoint(config, "checkpoint_last.pt")
    torch.save({"model": {}, "code": print}, path, pickle_module=pickle)
    with pytest.raises(UserError, match="contains code"):
        recover_checkpoints(config.folder)


def test_a_truncated_last_checkpoint_is_restored_from_its_original(config, capsys):
    original = write_checkpoint(config, "checkpoint_best.pt")
    last = config.checkpoints / "checkpoint_last.pt"
    last.write_bytes(original.read_bytes()[:200])
    assert recover_checkpoints(config.folder) == 6
    assert last.read_bytes() == original.read_bytes()
    assert "resuming from the newest intact checkpoint, checkpoint_best.pt (6 updates)" in capsys.readouterr().err
    original.unlink()
    last.write_bytes(b"")
    with pytest.raises(UserError, match=r"checkpoint_last\.pt is damaged, and no other checkpoint in its folder"):
        recover_checkpoints(config.folder)


def test_records_of_earlier_versions_have_no_external_scores(tmp_path):
    record = scored_record()
    save_record(tmp_path, record)
    written = json.loads((tmp_path / "run.json").read_text())
    assert written["evaluations"]["test"].pop("external") == {}
    (tmp_path / "run.json").write_text(json.dumps(written))
    assert load_record(tmp_path) == record
    assert record.external_scores == replace(record, evaluations={}).external_scores == {}


def test_the_signature_of_an_external_score_is_the_version_or_else_the_command():
    assert ExternalScore(1.0, "a b", "v", "f", "").signature == "v"
    assert ExternalScore(1.0, "a b", "", "f", "").signature == "a b"
