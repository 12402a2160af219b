"""The report and plots: complete, with the right values, units and ranges."""

import io
import re
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import torch
from plotly.offline import get_plotlyjs

from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.plots import choose_sentence, draw_maps, sharpest_head
from relumt.analysis.record import AttentionMetrics, CheckpointAnalysis, FeedForwardMetrics, read_analysis
from relumt.analysis.report import describe_model, summarize
from relumt.analysis.report_figures import build_figures
from relumt.files import file_sha256
from relumt.runs.environment import describe_revision
from relumt.runs.record import save_record
from tests.analysis.cases import write_report
from tests.runs.cases import scored_record

FIGURES = (
    "sparsity null_rate entropy sink_rate distant stop_words diversity top_share alignment norm_alignment "
    "feedforward_variance feedforward_top feedforward_null feedforward_anisotropy"
).split()


@pytest.fixture(scope="module")
def printed():
    """What the analysis prints, after `report`."""
    return io.StringIO()


@pytest.fixture(scope="module")
def report(tmp_path_factory, checkpoint_with, printed):
    with redirect_stderr(printed):
        return write_report(tmp_path_factory.mktemp("report"), checkpoint_with)


def test_the_report_needs_no_other_file_and_is_small(report):
    text = report.read_text().replace(get_plotlyjs(), "")
    assert report.stat().st_size < 15e6
    assert re.findall(r'(?:src|href)="([^#].*?)"', text) == ["data:,"]
    for name in FIGURES:
        assert f'id="figure-{name}"' in text
    assert "[RL] rela_g 52.41" in text  # a value from the paper
    for table in ("models", "summary-attention", "summary-feed-forward", "summary-alignment-errors"):
        assert f'<table id="{table}">' in text
    for title in ("A Study on ReLU and Softmax in Transformer", "Sparse Attention with Linear Units"):
        assert text.count(title) == 1  # once, in the list of papers that every [RF] and [RL] links to
    assert text.count('href="#paper-RF"') > 5 and text.count('id="paper-RF"') == 1


def test_plots_are_written_as_png_and_svg(report):
    for name in ("activations", "parameters", "maps"):
        assert (report.parent / f"{name}.png").stat().st_size > 5000
        assert "</svg>" in (report.parent / f"{name}.svg").read_text()


def test_missing_measures_are_reported_and_earlier_maps_removed(report, printed):
    for message in (
        "encoder.layers.0.self_attn, encoder.layers.1.self_attn",
        "this mechanism has no attention weights",
        "weights can be negative",
        "gold: links to words that the sentence does not have: 1; left out",
    ):
        assert message in printed.getvalue()
    assert printed.getvalue().count("weights can be negative") == 1  # of rela_g_gelu alone
    assert sorted(path.name for path in report.parent.glob("maps-*.pt")) == [f"maps-{n}.pt" for n in (1, 2, 3, 4)]


def test_the_numbers_of_all_checkpoints_are_recorded(report):
    result = read_analysis(report.parent / "analysis.json")
    assert result.subset == "test" and [analysis.num_pairs for analysis in result.checkpoints] == [3] * 4
    first, *_, last = result.checkpoints
    state = torch.load(first.path, weights_only=False)["model"]  # nothing is shared in this model
    buffers = ("version", "_float_tensor")
    assert first.num_parameters == sum(x.numel() for name, x in state.items() if not name.endswith(buffers))
    assert first.versions["revision"] == describe_revision() and len(first.sha256) == 64
    assert sorted(first.feedforward) == [f"{x}coder.layers.{i}" for x in ("de", "en") for i in (0, 1)]
    assert first.activations["encoder.layers.0"] == {"beta": 1.0, "gamma": 0.5} and last.activations == {}
    assert first.alignment.norm_layers.keys() == first.alignment.layers.keys()
    assert 0 <= first.alignment.aol("normal") <= 100
    assert first.alignments_sha256 == file_sha256(report.parent.parent / "gold")


def test_the_plotted_sentence_is_readable():
    lengths = [(20, 9), (9, 8), (8, 9)]
    sentences = [SentenceMaps(i, ["a"] * s, ["a"] * t, ["a"] * t) for i, (s, t) in enumerate(lengths)]
    assert choose_sentence(sentences) == 1
    sentences[1].source[0] = "spl@@"
    assert choose_sentence(sentences) == 2
    assert choose_sentence(sentences[:1]) == 0


def test_the_plotted_reference_is_chosen_among_references():
    targets = [(0, "reference", ["spl@@"] * 9), (1, "reference", ["a"] * 20), (1, "translation", ["a"] * 9)]
    sentences = [
        SentenceMaps(
            number, ["a"] * 9, target, target, {"x": torch.eye(len(target), 9)[None]}, {"x": "cross"}, origin=origin
        )
        for number, origin, target in targets
    ]
    assert len(draw_maps({"x": sentences})["maps"].axes[0].get_yticks()) == 9


def test_the_plotted_head_is_sharp():
    flat, sharp = torch.full((2, 4, 5), 0.2), torch.eye(4, 5)
    dead = torch.zeros(4, 5)
    assert sharpest_head([flat, torch.stack([dead, 0.1 * sharp])]) == (1, 1)


def test_a_head_with_null_rows_only_has_no_distance_and_no_line():
    layer = AttentionMetrics(
        "decoder", "ReLU", 5, sparsity=[1.0, 0.5], null_rate=[1.0, 0.0], entropy=[0.0, 1.0],
        top_share={"1": [None, 0.5], "50": [None, 0.9]}, distance=[None, 2.0], distant_share=[None, 0.25],
        head_diversity={"1.0": 0.5},
    )  # fmt: skip
    dead = replace(layer, top_share={"1": [None, None], "50": [None, None]}, distant_share=[None, None])
    layers = {"a": layer, "b": dead}
    analysis = CheckpointAnalysis("x", "x.pt", "d", "c", {}, "subwords", 1, 0, layers, None, {}, {}, "", 1)
    found = build_figures([analysis])
    assert list(found["distant"][2].data[0].y) == [0.25, None]
    assert list(found["top_share"][2].data[0].y) == [0.5, 0.9]
    assert summarize(analysis)["attention", "decoder", "entropy"] == "0.500"


def test_plots_have_axis_titles_and_show_the_range_over_heads():
    layer = AttentionMetrics("cross", "ReLU", 5, sparsity=[0.25, 0.5, 0.9], top_share={"1": [0.1, 0.4, 0.4]})
    feedforward = {f"{stack}.layers.0": FeedForwardMetrics(8, 3, 0.2, 0.1, {"50": 0.7}, -0.0001)
                   for stack in ("encoder", "decoder")}  # fmt: skip
    analysis = CheckpointAnalysis("x", "x", "d", "c", {}, "subwords", 1, 0, {"a": layer}, None, feedforward, {}, "", 1)
    found = {name: figure for name, (_, _, figure) in build_figures([analysis]).items()}
    for name, (lowest, mean, highest) in {"sparsity": (0.25, 0.55, 0.9), "top_share": (0.1, 0.3, 0.4)}.items():
        (line,) = found[name].data
        bars = line.error_y
        assert (line.y[0], line.y[0] - bars.arrayminus[0], line.y[0] + bars.array[0]) == pytest.approx(
            (mean, lowest, highest)
        )
    assert (
        found["feedforward_variance"].data[0].y == (0.2,) and found["feedforward_variance"].data[0].error_y.type is None
    )
    assert found["feedforward_top"].data[0].x == (50.0,) and found["feedforward_top"].layout.xaxis.type == "log"
    for figure in found.values():
        assert figure.layout.yaxis.title.text and figure.layout.xaxis.title.text and figure.layout.xaxis2.title.text
    assert summarize(analysis)["feed-forward", "encoder", "anisotropy"] == "0.000"


def test_a_model_has_the_scores_of_its_run_only_if_they_are_of_these_weights(tmp_path):
    save_record(tmp_path, scored_record(bleu=31.4))
    checkpoint = str(tmp_path / "checkpoints" / "checkpoint_best.pt")
    scored, other = (describe_model("m", checkpoint, "data-bin", sha256, 7) for sha256 in ("c", "d"))
    assert {title: score.score for title, score in scored["scores"].items()} == {"BLEU tok": 31.4, "BLEU detok": 31.4}
    assert other["scores"] == {} and scored["trained"] == other["trained"] == "small, de–en"
    assert describe_model("m", "checkpoint.pt", "data-bin", "c", None)["trained"] == ""
