"""The report and plots: complete, and interactive where a browser is installed."""

import io
import json
import re
import shutil
import subprocess
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import torch
from plotly.offline import get_plotlyjs

from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.plots import choose_sentence, sharpest_head
from relumt.analysis.record import AttentionMetrics, CheckpointAnalysis, read_analysis
from relumt.analysis.report import summarize
from relumt.analysis.report_figures import build_figures
from relumt.cli import main
from relumt.files import file_sha256
from relumt.runs.environment import describe_revision
from tests.plugin.model.build import write_data_bin

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
LENGTHS = [(7, 5), (3, 8), (4, 2)]
FIGURES = (
    "sparsity null_rate entropy sink_rate distant stop_words diversity top_share alignment norm_alignment"
).split()

TRY = """<script>
// The enlarged map as it is painted: its size in cells, and a checksum of its pixels; null without a map.
const shown = () => JSON.stringify(["left", "right"].map((side) => {
  const canvas = document.querySelector(`#map-${side} canvas`);
  if (!canvas) return null;
  const count = (name) => document.querySelectorAll(`#map-${side} .${name}`).length;
  const pixels = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data;
  return [count("query"), count("key"), pixels.reduce((sum, byte, index) => (sum * 31 + byte) % 1000003, 0)];
}));
const seen = [shown()];
const changes = ["head 1", "layer 0", "kind norms", "origin translation", "site encoder", "sentence 1", "left 1",
                 "right 2"];
for (const [id, value] of changes.map((change) => change.split(" "))) {
  const select = document.getElementById(id);
  select.value = value;
  select.dispatchEvent(new Event("change"));
  seen.push(shown());
}
const button = document.querySelectorAll("#heads-left button")[3];
button.click();
const chosen = ["layer", "head"].map((id) => document.getElementById(id).value);
document.querySelector("#map-left canvas").dispatchEvent(new MouseEvent("mousemove", {clientX: 0, clientY: 0}));
const drawn = [...document.querySelectorAll(".figure")].filter((div) => div.querySelector(".main-svg")).length;
const message = document.getElementById("none-right").textContent;
document.title = "tried " + JSON.stringify({seen: seen.map(JSON.parse), drawn, chosen, message});
</script></body>"""


def data_bin(folder):
    write_data_bin(folder / "data-bin", LENGTHS, "train")
    return write_data_bin(folder / "data-bin", LENGTHS)


def write_report(folder, checkpoint_with, *flags):
    """Write the report on a softmax model with trained activations, a ReLU, an inhibitor and a model with negative
    weights; return its path."""
    data = data_bin(folder)
    (folder / "gold").write_text("0-0 1p1\n0-0\n0-0 90-0\n")
    (folder / "out").mkdir()
    (folder / "out" / "maps-9.pt").write_bytes(b"of an earlier analysis")
    activations = ("--feedforward-encoder", "aptx1", "--feedforward-decoder", "relu_gt")
    checkpoints = [checkpoint_with("--attention", "softmax", *activations)]
    checkpoints += [checkpoint_with("--attention", name) for name in ("relu", "inhibitor", "rela_g_gelu")]
    main(["analyze", *map(str, checkpoints), "--data", str(data), "--out", str(folder / "out"),
          "--alignments", str(folder / "gold"), *flags])  # fmt: skip
    return folder / "out" / "report.html"


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
    assert '<table id="summary">' in text and '<table id="alignment-errors">' in text


def test_plots_are_written_as_png_and_svg(report):
    for name in ("attention", "activations", "parameters", "maps"):
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
    assert first.versions["revision"] == describe_revision() and len(first.sha256) == 64
    assert sorted(first.feedforward) == [f"{x}coder.layers.{i}" for x in ("de", "en") for i in (0, 1)]
    assert first.activations["encoder.layers.0"] == {"beta": 1.0, "gamma": 0.5} and last.activations == {}
    assert first.alignment.norm_layers.keys() == first.alignment.layers.keys()
    assert 0 <= first.alignment.aol("normal") <= 100
    assert first.alignments_sha256 == file_sha256(report.parent.parent / "gold")


def test_the_plotted_sentence_is_readable_and_the_head_sharp():
    lengths = [(20, 9), (9, 8), (8, 9)]
    sentences = [SentenceMaps(i, ["a"] * s, ["a"] * t, ["a"] * t) for i, (s, t) in enumerate(lengths)]
    assert choose_sentence(sentences) == 1
    sentences[1].source[0] = "spl@@"
    assert choose_sentence(sentences) == 2
    assert choose_sentence(sentences[:1]) == 0
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
    analysis = CheckpointAnalysis("x", "x.pt", "data-bin", "c", {}, "subwords", 1, 0, layers, None, {}, {})
    found = build_figures([analysis])
    assert list(found["distant"][2].data[0].y) == [0.25, None]
    assert list(found["top_share"][2].data[0].y) == [0.5, 0.9]
    assert summarize(analysis)["decoder", "entropy"] == "0.500"


@pytest.mark.slow
@pytest.mark.skipif(BROWSER is None, reason="needs chromium")
def test_selectors_change_the_maps_without_console_messages(tmp_path, checkpoint_with):
    page = tmp_path / "tried.html"
    page.write_text(write_report(tmp_path, checkpoint_with, "--own-translations").read_text().replace("</body>", TRY))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               "--virtual-time-budget=20000", "--dump-dom", page.as_uri()]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    complaints = [line for line in ended.stderr.splitlines() if "CONSOLE" in line]
    assert complaints == []
    tried = re.search(r"<title>tried (.*?)</title>", ended.stdout)
    assert tried, ended.stdout[:300] + ended.stderr[-2000:]
    seen = json.loads(tried[1])
    assert seen["drawn"] == len(FIGURES)
    first, head, layer, kind, origin, site, sentence, left, right = seen["seen"]
    assert first[0][:2] == first[1][:2] == [5, 7]  # cross-attention of the first sentence: targets × sources
    assert head[0][:2] == [5, 7] and head[0] != first[0] and layer[0] != head[0] and kind[0] != layer[0]
    assert origin[0][0] > 5 and origin[0][1] == 7  # an untrained model does not end its translation
    assert site[0][:2] == [7, 7] and sentence[0][:2] == [3, 3]
    assert left[0] == left[1] == sentence[1] and right[1] is None
    assert seen["message"].startswith("No map: this attention has no weights")  # the inhibitor
    assert seen["chosen"] == ["1", "0"]  # three maps in a row: two heads, and all together
