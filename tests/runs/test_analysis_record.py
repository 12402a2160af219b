"""analysis.json: what is written is read back, and anything else ends in one line."""

import json

import pytest

from relumt.errors import UserError
from relumt.runs.analysis_record import (
    SCHEMA,
    AlignmentErrors,
    AlignmentMetrics,
    AnalysisFile,
    AttentionMetrics,
    CheckpointAnalysis,
    FeedForwardMetrics,
    LayerAlignment,
    read_analysis,
    write_analysis,
)

LAYERS = {
    "a": LayerAlignment(AlignmentErrors([40.0, 30.0], 50.0), AlignmentErrors([20.0, 30.0], 60.0)),
    "b": LayerAlignment(AlignmentErrors([10.0, 20.0], 70.0), AlignmentErrors([40.0, 30.0], 80.0)),
}
ANALYSIS = AnalysisFile(
    "test",
    [
        CheckpointAnalysis(
            name="softmax/1",
            path="checkpoint_best.pt",
            data="data-bin",
            sha256="c",
            versions={"torch": "2"},
            unit="words",
            num_pairs=3,
            num_pairs_too_long=1,
            attention={
                "encoder": AttentionMetrics("encoder", "ReLU", 5, sparsity=[0.5, 1.0], entropy=[1.0, None]),
                "cross": AttentionMetrics("cross", "Inhibitor"),
            },
            alignment=AlignmentMetrics(0, LAYERS),
            feedforward={"encoder.layers.0": FeedForwardMetrics(32, 10, 0.2, 0.0, {"1": 0.5}, None)},
            activations={"encoder.layers.0": {"beta": 1.0}},
        )
    ],
)


def test_what_is_written_is_read(tmp_path):
    write_analysis(ANALYSIS, tmp_path / "analysis.json")
    assert read_analysis(tmp_path / "analysis.json") == ANALYSIS


def test_alignment_errors_are_averaged_over_layers():
    (analysis,) = ANALYSIS.checkpoints
    assert (analysis.alignment.aoh("normal"), analysis.alignment.aol("normal")) == (20.0, 60.0)
    assert (analysis.alignment.aoh("shifted"), analysis.alignment.aol("shifted")) == (25.0, 70.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda found: found.update(schema=SCHEMA - 1), f"expected schema {SCHEMA}, found {SCHEMA - 1}"),
        (lambda found: found.pop("subset"), "missing required field `subset`"),
        (
            lambda found: found["checkpoints"][0].update(num_pairs="3"),
            r"Expected `int`.*\$\.checkpoints\[0\]\.num_pairs",
        ),
        (lambda found: found["checkpoints"][0]["attention"]["cross"].pop("site"), "missing required field `site`"),
    ],
)
def test_another_format_ends_in_one_line(tmp_path, change, message):
    path = tmp_path / "analysis.json"
    write_analysis(ANALYSIS, path)
    found = json.loads(path.read_text())
    change(found)
    path.write_text(json.dumps(found))
    with pytest.raises(UserError, match=f"^.*{message}.*; delete it and run relumt analyze again$"):
        read_analysis(path)
