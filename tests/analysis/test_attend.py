"""`relumt attend` and `relumt analyze --own-translations`: maps of a model that reads its own translation."""

import base64
import json
import re

import numpy as np
import pytest
import torch

from relumt.analysis.attention_maps import SentenceMaps, load_maps
from relumt.analysis.measure import AnalysisConfig, measure_checkpoint
from relumt.analysis.report import encode_models, write_explorer
from relumt.cli import main
from relumt.runs.inference.export import CONFIG
from relumt.runs.inference.translator import load
from tests.plugin.model.build import write_data_bin

SHORT = ("--max-source-positions", "16", "--max-target-positions", "12")
HOSTILE = "w3 </script> <b>'{{ zebra"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data") / "data-bin"
    write_data_bin(folder, [(7, 5), (3, 8)], "train")
    return write_data_bin(folder, [(7, 5), (3, 8)])


def attend(checkpoint, data, out, *arguments):
    main(["attend", str(checkpoint), *map(str, arguments), "--data", str(data), "--out", str(out), "--beam", "1"])


def read_models(page):
    return json.loads(re.search(r'<script type="application/json" id="maps">(.*?)</script>', page.read_text(), re.S)[1])


def test_maps_are_those_of_the_translation_and_any_text_is_escaped(tmp_path, data, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_g", *SHORT)
    attend(checkpoint, data, tmp_path / "out", "w3 w4 w5", HOSTILE)
    lines = capsys.readouterr().out.splitlines()
    expected = load(checkpoint, data, cpu=True).translate(["w3 w4 w5", HOSTILE], beam=1)
    assert [line.split("\t") for line in lines] == [[x.text, f"{x.score:.3f}"] for x in expected]
    page = tmp_path / "out" / "attend.html"
    (model,) = read_models(page)
    maps = load_maps(tmp_path / "out" / "maps.pt")
    for shown, kept, translation in zip(model["sentences"], maps, expected, strict=True):
        assert shown["origin"] == kept.origin == "translation"
        assert kept.source == [*translation.source_tokens, "</s>"] == shown["source"]
        assert kept.target == [*translation.tokens, "</s>"] == shown["target"]
        assert kept.maps["decoder.layers.1.encoder_attn"].shape == (2, len(kept.target), len(kept.source))
    assert maps[1].source[:2] == ["w3", "<unk>"] and maps[1].source[-2] == "<unk>"


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--attention", "rela_g", *SHORT), "has 31 subwords, but the model reads at most 16; split"),
        (("--attention", "inhibitor"), "InhibitorAttention has no attention weights to show"),
        (("--arch", "transformer"), "expected one of relumt's architectures"),
    ],
)
def test_invalid_input_ends_in_one_line_without_files(tmp_path, data, capsys, checkpoint_with, flags, message):
    with pytest.raises(SystemExit, match="2"):
        attend(checkpoint_with(*flags), data, tmp_path / "out", "w3 " * 30)
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


def test_own_translations_stand_beside_the_references(data, checkpoint_with):
    config = AnalysisConfig(data, "test", num_maps=2, cpu=True, maps_own_translations=True)
    _, maps = measure_checkpoint(checkpoint_with("--attention", "rela_g", *SHORT), "name", config)
    assert [(sentence.origin, sentence.index) for sentence in maps] == [
        (origin, index) for origin in ("reference", "translation") for index in (0, 1)
    ]
    for reference, translation in zip(maps[:2], maps[2:], strict=True):
        assert reference.source == translation.source and reference.target != translation.target
        module = "encoder.layers.1.self_attn"  # the encoder does not see the target
        torch.testing.assert_close(reference.maps[module], translation.maps[module])
        torch.testing.assert_close(reference.norms[module], translation.norms[module])


def test_an_exported_model_translates_with_its_own_search_settings(tmp_path, data, checkpoint_with):
    checkpoint, exported = checkpoint_with("--attention", "relu", *SHORT), tmp_path / "exported"
    main(["export", str(checkpoint), "--data", str(data), "--to", "safetensors", "--out", str(exported)])
    config = json.loads((exported / CONFIG).read_text())
    config["search"] |= {"max_len_a": 0, "max_len_b": 2}
    (exported / CONFIG).write_text(json.dumps(config))
    _, maps = measure_checkpoint(
        exported, "name", AnalysisConfig(data, "test", num_maps=2, cpu=True, maps_own_translations=True)
    )
    assert [len(sentence.target) <= 3 for sentence in maps] == [False, False, True, True]


def test_tokens_and_names_cannot_break_the_page(tmp_path):
    tokens = ["</script><b>", '"', "'", "&amp;", "<!--", "{{ x }}", "\u2028"]
    weights = torch.ones(1, 7, 7)
    sentence = SentenceMaps(
        0, tokens, tokens, tokens, {"m": weights}, {"m": "cross"}, {"m": weights}, {"m": weights[0]}
    )
    write_explorer("<b>&", "</script><i>", [sentence], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("</script>") == 2 and "<i>" not in text and "<h1>&lt;b&gt;&amp;</h1>" in text
    (model,) = read_models(tmp_path / "page.html")
    assert model["name"] == "</script><i>" and model["sentences"][0]["source"] == tokens


def decoded(weights):
    """Return a map as the page shows it, which reads bfloat16 as the upper half of float32."""
    sentence = SentenceMaps(0, ["a"], ["</s>"], ["x"], {"m": weights}, {"m": "cross"})
    (model,) = json.loads(encode_models([("name", [sentence])]))
    (encoded,) = model["sentences"][0]["maps"]
    assert encoded["norms"] is None
    codes = np.frombuffer(base64.b64decode(encoded["weights"]["data"]), "<u2").astype("<u4")
    return (codes << 16).view("<f4").reshape(encoded["weights"]["shape"])


def test_only_an_exact_zero_is_shown_as_zero_and_signs_are_kept():
    weights = torch.tensor([[[0.0, 1e-9, 4.0]], [[0.5, 0.0, -1.0]], [[-0.0, 1e-45, -1e-45]]])
    shown = decoded(weights)
    assert (np.sign(shown) == np.sign(weights.numpy())).all()
    assert shown[:2] == pytest.approx(weights[:2].numpy(), rel=2**-8)


def test_shares_of_a_row_have_two_correct_digits_however_small_its_weights_are():
    generator = torch.Generator().manual_seed(1)
    weights = torch.softmax(8 * torch.randn(2, 3, 100, generator=generator), -1)  # a few large, many small weights
    weights[:, 1] *= 1e-6  # beside rows of much larger weights
    shown = decoded(weights)
    shares, expected = (w / w.sum(-1, keepdims=True) for w in (shown, weights.numpy()))
    assert shares == pytest.approx(expected, rel=0.005)
