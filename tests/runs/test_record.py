import json
from dataclasses import replace

import pytest

from relumt.errors import UserError
from relumt.runs.environment import Kernels, installed_version
from relumt.runs.evaluation_record import (
    DocumentResults,
    LengthPenaltyChoice,
    LengthPenaltySearch,
    SubsetScores,
)
from relumt.runs.flags import differences
from relumt.runs.record import SCHEMA, AcceptedChange, Divergence, find_record, load_record, save_record
from relumt.runs.training import training_provenance
from tests.runs.cases import CPU, scored_record, with_value

CHOICE = LengthPenaltyChoice("valid", "data", "tok:none", {"0.6": 30.0, "1.0": 29.5}, "0.6")


@pytest.fixture
def provenance(config):
    return training_provenance(config.train_flags([]), config.data_bin, CPU)


def test_a_record_is_read_as_it_was_written(tmp_path):
    record = scored_record()
    scored = record.test_evaluation
    documents = DocumentResults(3, 2, 1, scored.scores)
    subsets = {"short": SubsetScores(2, scored.scores)}
    record = replace(
        record,
        accepted_changes=[AcceptedChange("2026-01-02", ["device name A (now B)"])],
        divergence=Divergence(3, "gradients are Nan/Inf: ∞"),
        length_penalty_search=LengthPenaltySearch(scored.setup, CHOICE),
        evaluations={
            "test": replace(scored, documents=documents, scored_files={"bleu_tokenized": ("h", "r")}),
            "valid": replace(scored, setup=replace(scored.setup, subset="valid"), subsets=subsets),
        },
    )
    save_record(tmp_path, record)
    assert load_record(tmp_path) == record
    assert json.loads((tmp_path / "run.json").read_text())["schema"] == SCHEMA


@pytest.mark.parametrize(
    ("kind", "setting", "is_difference"),
    [("cuda", "auto", True), ("cuda", "reference", False), ("cpu", "auto", False), ("cpu", "fused", True)],
)
def test_triton_counts_where_its_kernels_may_run(provenance, kind, setting, is_difference):
    before = with_value(provenance, "environment.device.kind", kind)
    before = with_value(before, "environment.kernels", Kernels(setting, "3.7.1"))
    for version, phrase in (("3.9.0", "kernels triton 3.7.1 (now 3.9.0)"), (None, "kernels triton 3.7.1 (now none)")):
        after = with_value(before, "environment.kernels.triton", version)
        assert differences(before.facts(), after.facts()) == ([phrase] if is_difference else [])


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("seed", "1", r"not in the expected format \(Expected `int`.*\$.seed`\); restore it from a copy"),
        ("evaluations.test", {}, r"Object missing required field `setup` - at `\$.evaluations\[...\]`"),
        ("schema", None, "expected schema 2, found None"),
        ("evaluations.test.setup.length_penalty.bleu", {}, "not in the expected format"),
    ],
)
def test_an_invalid_field_is_named(tmp_path, path, value, message):
    save_record(tmp_path, with_value(scored_record(), "evaluations.test.setup.length_penalty", CHOICE))
    record = json.loads((tmp_path / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps(with_value(record, path, value)))
    with pytest.raises(UserError, match=rf"run\.json.*{message}") as refused:
        find_record(tmp_path)
    assert "\n" not in str(refused.value)


def test_broken_and_missing_files_are_refused(tmp_path):
    assert find_record(tmp_path) is None
    with pytest.raises(UserError, match=r"run\.json: no such file; train with relumt run --train"):
        load_record(tmp_path)
    for text in (b"{", b"[]", b"\xff", b""):
        (tmp_path / "run.json").write_bytes(text)
        with pytest.raises(UserError, match=r"set RUNS to another folder .* need not be deleted"):
            load_record(tmp_path)


@pytest.mark.parametrize(
    ("path", "value", "phrase"),
    [
        ("environment.versions.torch", "1.0", f"version torch {installed_version('torch')} (now 1.0)"),
        ("environment.revision.code", "abc", "(now abc)"),
        ("environment.device.name", "H100", "device name x86_64 (now H100)"),
        ("environment.kernels.setting", "reference", "kernels setting auto (now reference)"),
    ],
)
def test_every_difference_is_named(provenance, path, value, phrase):
    changed = with_value(provenance, path, value)
    (difference,) = differences(provenance.facts(), changed.facts())
    assert phrase in difference


def test_what_makes_no_difference(provenance):
    """The commit may differ in documentation only; the checksum of initial weights that were deleted is unknown."""
    assert (
        differences(provenance.facts(), with_value(provenance, "environment.revision.commit", "f" * 40).facts()) == []
    )
    trained = with_value(provenance, "initialization.sha256", "a")
    assert differences(trained.facts(), provenance.facts()) == []
    assert differences(provenance.facts(), trained.facts()) == ["initialization sha256 none (now a)"]
