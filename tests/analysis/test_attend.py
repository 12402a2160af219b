"""`relumt attend` and `relumt analyze --own-translations`: maps of a model that reads its own translation."""

import json
import re

import pytest
import torch

from relumt.analysis.attention_maps import SentenceMaps, load_maps
from relumt.analysis.measure import AnalysisConfig, measure_checkpoint
from relumt.analysis.report import write_explorer
from relumt.cli import main
from relumt.runs.inference.export import CONFIG
from relumt.runs.inference.loaded_model import load_model
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


def test_tokens_and_names_cannot_break_the_page(tmp_path, data, checkpoint_with):
    tokens = ["</script><b>", '"', "'", "&amp;", "<!--", "{{ x }}", "\u2028"]
    weights = torch.ones(1, 7, 7)
    sentence = SentenceMaps(
        0, tokens, tokens, tokens, {"m": weights}, {"m": "cross"}, {"m": weights}, {"m": weights[0]}
    )
    loaded, _ = load_model(checkpoint_with("--attention", "rela_g", *SHORT), data, cpu=True)
    write_explorer("</script><i>", loaded, [sentence], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert text.count("</script>") == 2 and "<i>;" not in text
    assert "<h1>Attention of &lt;/script&gt;&lt;i&gt;</h1>" in text
    (model,) = read_models(tmp_path / "page.html")
    assert model["name"] == "</script><i>" and model["sentences"][0]["source"] == tokens
