"""The explorer of attention maps: what the page is given, and, where a browser is installed, what it does with it."""

import base64
import json
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from relumt.analysis import report
from relumt.analysis.attention_maps import SentenceMaps
from relumt.analysis.report import encode_models, measure_map, share_room, write_explorer
from relumt.runs.inference.loaded_model import load_model
from tests.analysis.cases import maps_of, measured, write_report
from tests.plugin.model.build import build, sample, write_data_bin

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

needs_browser = pytest.mark.skipif(BROWSER is None, reason="needs chromium")


def encoded(weights, **fields):
    """Return a sentence with one map as the page is given it."""
    sentence = SentenceMaps(
        0, ["a@@", "b", "</s>"], ["</s>"], ["x@@", "y", "</s>"], {"m": weights}, {"m": "cross"}, **fields
    )
    (model,) = json.loads(encode_models([("name", [sentence])]))
    return model["sentences"][0]


def decoded(weights):
    """Return the weights of the heads, and last of all together, as the page reads them.

    bfloat16 is the upper half of float32.
    """
    (found,) = encoded(weights)["maps"]
    assert found["norms"] is None
    heads = [np.frombuffer(base64.b64decode(head), "<u2").astype("<u4") << 16 for head in found["weights"]["heads"]]
    return np.stack([head.view("<f4") for head in heads]).reshape(found["weights"]["shape"])


def test_only_an_exact_zero_is_shown_as_zero_and_signs_are_kept():
    weights = torch.tensor([[[0.0, 1e-9, 4.0]], [[0.5, 0.0, -1.0]], [[-0.0, 1e-45, -1e-45]]])
    shown = decoded(weights)
    assert (np.sign(shown[:3]) == np.sign(weights.numpy())).all()
    assert shown[:2] == pytest.approx(weights[:2].numpy(), rel=2**-8)
    assert shown[3] == pytest.approx(weights.mean(0).numpy(), rel=2**-7)


def test_shares_of_a_row_have_two_correct_digits_however_small_its_weights_are():
    generator = torch.Generator().manual_seed(1)
    weights = torch.softmax(8 * torch.randn(2, 3, 100, generator=generator), -1)  # a few large, many small weights
    weights[:, 1] *= 1e-6  # beside rows of much larger weights
    shown = decoded(weights)[:2]
    shares, expected = (w / w.sum(-1, keepdims=True) for w in (shown, weights.numpy()))
    assert shares == pytest.approx(expected, rel=0.005)


def test_pooled_maps_keep_single_peaks_and_only_blocks_of_zeros_are_zero(monkeypatch):
    weights = torch.zeros(2, 5, 7)
    weights[0, 0, 0], weights[0, 1, 1], weights[0, 4, 6], weights[1, 2, 3] = 0.25, -0.5, 0.125, 1e-45
    monkeypatch.setattr(report, "MAX_NUMBERS", 2 * 3 * 5 * 7 // 4 + 20)
    shown = decoded(weights)
    assert shown.shape == (3, 3, 4)
    assert {tuple(at): shown[0][tuple(at)] for at in np.argwhere(shown[0])} == {(0, 0): -0.5, (2, 3): 0.125}
    assert np.argwhere(shown[1]).tolist() == [[1, 1]] and shown[1, 1, 1] > 0


@given(st.lists(st.integers(1, 100), max_size=6), st.integers(6, 300))
def test_the_room_of_a_page_is_used_by_the_largest_maps_last(sizes, room):
    limit = share_room(sizes, room)
    used = sum(min(size, limit) for size in sizes)
    assert used <= room
    assert used == sum(sizes) or used + len(sizes) > room  # all are whole, or the room is used up to rounding


@pytest.mark.parametrize("attention", ["softmax", "relu", "rela_g_gelu"])
def test_measures_of_a_sentence_are_those_of_the_analysis(attention):
    """Both are means over queries, so those of a test set of one sentence are equal."""
    model = build("mechanism_transformer", "--attention", attention)
    batch = sample([(7, 5)])
    expected = measured(model, [batch])
    (sentence,) = maps_of(model, batch, 1)
    for module, weights in sentence.maps.items():
        found = measure_map(weights, sentence.sites[module] == "decoder")
        assert ("entropy" in found) == (attention != "rela_g_gelu")
        for name, values in found.items():
            *heads, average = values
            assert len(heads) == 2 and average == pytest.approx(sum(heads) / 2)
            if name != "largest share":
                assert heads == pytest.approx(getattr(expected[module], name.replace(" ", "_")), abs=1e-6)


def test_null_rows_have_no_largest_share():
    weights = torch.tensor([[[0.0, 0.0], [3.0, 1.0]], [[0.0, 0.0], [0.0, 0.0]]])
    found = measure_map(weights, is_causal=False)
    assert found["largest share"] == [0.75, None, 0.75] and found["null rate"] == [0.5, 1.0, 0.75]


@pytest.mark.parametrize(("subwords", "source", "target"), [("none", "a@@ b", "x@@ y"), ("subword-nmt", "ab", "xy")])
def test_only_subwords_are_joined(subwords, source, target):
    shown = encoded(torch.ones(1, 3, 3), subwords=subwords)
    assert (shown["source_text"], shown["target_text"]) == (source, target)


# ---- In a browser ----------------------------------------------------------------------------------------------------

HELPERS = """
const act = (id, event, values) => byId(id).dispatchEvent(Object.assign(new Event(event), values));
const set = (id, value, event = "change") => { byId(id).value = value; act(id, event); };
const cells = (side) => [...document.querySelectorAll(`#map-${side} svg > rect`)].slice(1, -1);  // no frame, no scale
// An enlarged map as it is drawn: its labels and the colors of its cells; null without a map.
const count = (side, labels) => document.querySelectorAll(`#map-${side} text[${labels}]`).length;
const shown = (side) => byId(`enlarged-${side}`).hidden ? null
  : [count(side, "text-anchor"), count(side, "transform"), cells(side).map((cell) => cell.getAttribute("fill")).join()];
const point = (type, target, x = 0.5, y = 0.5) => {
  const box = target.getBoundingClientRect();
  document.querySelector("#map-left svg").dispatchEvent(
    new PointerEvent(type, {clientX: box.left + x * box.width, clientY: box.top + y * box.height}));
};
"""

CONTROLS = """
const seen = [[shown("left"), shown("right")]];
for (const [id, value] of [["head", 1], ["layer", 0], ["kind", "norms"], ["origin", "translation"], ["site", "encoder"],
                           ["sentence", 1], ["left", 1], ["right", 2]]) {
  set(id, value);
  seen.push([shown("left"), shown("right")]);
}
const message = byId("none-right").textContent;
document.querySelectorAll("#heads-left button")[3].click();
const chosen = ["layer", "head"].map((id) => byId(id).value);
set("sentence", 0); set("right", 1); set("kind", "weights");
point("pointermove", cells("left")[0]);
const readout = byId("readout-left").textContent;
point("pointerdown", cells("left")[0]); point("pointermove", cells("left")[27]); point("pointerup", cells("left")[27]);
const zoomed = [zoom, shown("left").slice(0, 2), shown("right").slice(0, 2)];
byId("zoom-all").click();
const all = shown("left").slice(0, 2);
const all_of = (selector) => [...document.querySelectorAll(selector)];
const rows = () => all_of("#table tr").slice(1).map((row) => Number(row.firstChild.textContent));
const header = (name) => all_of("#table th button").find((button) => button.textContent.startsWith(name));
header("source tokens").click();
const ascending = rows();
header("source tokens").click();
const descending = rows();
set("measure", "source tokens", "input"); set("lowest", 4, "input"); set("highest", 7, "input");
const filtered = [rows(), byId("num-shown").textContent];
let saved = null;
URL.createObjectURL = (blob) => { saved = blob; return "data:,"; };
byId("save-left").click();
const drawn = [...document.querySelectorAll(".figure")].filter((div) => div.querySelector(".main-svg")).length;
saved.text().then((text) => report({seen, message, chosen, readout, zoomed, all, ascending, descending, filtered, drawn,
  svg: new DOMParser().parseFromString(text, "image/svg+xml").documentElement.querySelectorAll("rect").length}));
"""

DOCUMENT = """
set("site", "encoder"); set("head", 0);
const image = document.querySelector("#map-left image").getAttribute("href").length;
const whole_map = document.querySelectorAll("#map-left svg > *").length;
const matrix = readHead(selectLayers(selectedSentence("left"))[0].weights, 0, false);
const pooled = [...pool(matrix, whole(matrix), 10, 10)].map((at) => matrix.values[at]).filter(Boolean);
const hidden = [...pool({...matrix, isCausal: true}, whole(matrix), 10, 10)].filter((at) => at < 0).length;
zoom = {top: 2040, left: 1496, rows: 8, columns: 8};
refresh();
const dark = cells("left").filter((cell) => cell.getAttribute("fill") !== "rgb(255, 255, 255)");
point("pointermove", dark[0]);
report({image, whole_map, pooled, hidden,
        dark: dark.length, num_cells: cells("left").length, readout: byId("readout-left").textContent,
        measures: byId("measures-left").textContent});
"""


def browse(page, script):
    """Run a script in a page; return what it reports, and fail if the page logs anything."""
    done = "const report = (found) => { document.title = `tried ${JSON.stringify(found)}`; };"
    tried = page.with_name("tried.html")
    tried.write_text(page.read_text().replace("</body>", f"<script>{{{done}{HELPERS}{script}}}</script></body>"))
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr",
               "--virtual-time-budget=60000", "--window-size=1280,900", "--dump-dom", tried.as_uri()]  # fmt: skip
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert [line for line in ended.stderr.splitlines() if "CONSOLE" in line] == []
    found = re.search(r"<title>tried (.*?)</title>", ended.stdout)
    assert found, ended.stdout[:300] + ended.stderr[-2000:]
    return json.loads(found[1].replace("&gt;", ">").replace("&lt;", "<").replace("&amp;", "&"))


@pytest.mark.slow
@needs_browser
def test_controls_change_the_maps_without_console_messages(tmp_path, checkpoint_with):
    found = browse(write_report(tmp_path, checkpoint_with, "--own-translations"), CONTROLS)
    first, head, layer, kind, origin, site, sentence, left, right = found["seen"]
    assert first[0][:2] == first[1][:2] == [5, 7]  # cross-attention of the first sentence: targets × sources
    assert head[0][:2] == [5, 7] and head[0] != first[0] and layer[0] != head[0] and kind[0] != layer[0]
    assert origin[0][0] > 5 and origin[0][1] == 7  # an untrained model does not end its translation
    assert site[0][:2] == [7, 7] and sentence[0][:2] == [3, 3]
    assert left[0] == left[1] == sentence[1] and right[1] is None
    assert found["message"].startswith("No map: this attention has no weights")  # the inhibitor
    assert found["chosen"] == ["1", "0"]  # three maps in a row: two heads, and all together
    assert re.fullmatch(r"w\d+ → w\d+: weight \S+, \S+% of the row; norm \S+, \S+% of the row", found["readout"])
    # From cell 0 to cell 27 = 3 * 7 + 6 of a map with 7 keys, in both models.
    assert found["zoomed"] == [{"top": 0, "left": 0, "rows": 4, "columns": 7}, [4, 7], [4, 7]]
    assert found["all"] == [7, 7]
    assert (found["ascending"], found["descending"]) == ([2, 3, 1], [1, 3, 2])
    assert found["filtered"] == [[1, 3], "2 of 3 sentences"]
    assert found["svg"] == 49 + 2 and found["drawn"] > 10


@pytest.mark.slow
@needs_browser
def test_a_map_of_2048_tokens_is_drawn_pooled_and_zoomed(tmp_path, checkpoint_with, monkeypatch):
    monkeypatch.setattr(report, "MAX_NUMBERS", 2**22)  # two tokens for each row and column
    tokens = [f"t{number}" for number in range(1, 2049)]
    weights = torch.zeros(1, 2048, 2048)
    weights[0, 2045, 1500], weights[0, 0, 0] = 0.5, 1.0
    sentence = SentenceMaps(0, tokens, tokens[:2], tokens[:2], {"m": weights}, {"m": "encoder"})
    loaded, _ = load_model(checkpoint_with(), write_data_bin(tmp_path / "data-bin", [(3, 3)]), cpu=True)
    write_explorer("name", loaded, [sentence], tmp_path / "page.html")
    found = browse(tmp_path / "page.html", DOCUMENT)
    assert found["image"] > 500 and found["whole_map"] < 300
    assert found["pooled"] == [1, 0.5] and found["hidden"] == 45  # of 100 cells, those above the diagonal
    assert (found["dark"], found["num_cells"]) == (1, 16)
    assert found["readout"] == "t2045 (2045) → t1501 (1501): weight 0.5"
    assert "the largest of 4 weights" in found["measures"] and found["measures"].startswith("sparsity 1 ")
