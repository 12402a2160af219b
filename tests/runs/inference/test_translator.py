"""`relumt.load` and `relumt translate`: the translations are those of fairseq-generate."""

import io
import json
import shutil
import sys
from dataclasses import replace

import pytest

import relumt
from relumt.cli import main
from relumt.errors import UserError
from relumt.runs.data_bin import keep_preparation, open_data_bin
from relumt.runs.inference.search import SearchSettings, search_of_run, settings_of_flags
from relumt.runs.inference.translator import Translator
from relumt.runs.record import save_record
from tests.plugin.model.build import build
from tests.runs.cases import scored_record, with_value
from tests.runs.inference.cases import fairseq_generate, texts


def assert_found(translations, expected):
    """Check translations against lines of fairseq-generate, whose scores have rounding errors of another batch."""
    for ours, (score, text) in zip(translations, expected, strict=True):
        assert ours.text == text and ours.score == pytest.approx(score, abs=1e-4)
        assert sum(ours.token_scores) < 0 and len(ours.token_scores) == len(ours.tokens) + 1


def test_the_translations_are_those_of_fairseq_generate(translator, data):
    flags = {"--beam": "4", "--lenpen": "1.2", "--length-penalty": "gnmt", "--max-len-b": "12"}
    translator.search = settings_of_flags(flags, "test")
    flags["--nbest"] = "2"
    expected = fairseq_generate(translator.loaded.path, data, *[word for flag in flags.items() for word in flag])
    found = translator.translate_nbest(texts(), nbest=2, batch_size=3)
    assert len(found) == len(expected) == len(texts())
    assert len({len(translation.tokens) for translations in found for translation in translations}) > 1
    for number, translations in enumerate(found):
        assert_found(translations, expected[f"D-{number}"])


def test_neither_batches_nor_other_lines_change_a_translation(translator):
    sentences = texts()
    alone = [translator.translate([text])[0] for text in sentences]
    lines = ["", *sentences[::-1], "  \t", "w3"]
    together = translator.translate(lines, batch_size=4)
    assert [x.text for x in together[1:-2]] == [x.text for x in alone[::-1]]
    assert [x.score for x in together[1:-2]] == pytest.approx([x.score for x in alone[::-1]], abs=1e-4)
    assert together[0].text == together[-2].text == "" and together[-1].text
    assert translator.translate([]) == []


@pytest.mark.slow
def test_alignments_are_those_of_fairseq_generate(lively_checkpoint, data):
    translator = relumt.load(lively_checkpoint("--attention", "softmax"), data=data, cpu=True)
    translator.search = SearchSettings(max_len_b=12)
    expected = fairseq_generate(translator.loaded.path, data, "--max-len-b", "12", "--print-alignment", "hard")
    translations = translator.translate(texts())
    assert_found(translations, [expected[f"D-{number}"][0] for number in range(len(texts()))])
    for number, alignment in enumerate(translator.align(translations, batch_size=4)):
        assert " ".join(f"{s}-{t}" for s, t in alignment.links) == expected[f"A-{number}"][0][1]
        shape = len(translations[number].target), len(translations[number].source)
        assert alignment.weights.shape == shape


@pytest.mark.parametrize("named", ["runs/model", "runs/model/checkpoints/checkpoint_best.pt"])
def test_a_run_translates_from_any_folder_without_its_data_bin(translator, data, tmp_path, monkeypatch, named):
    run = tmp_path / "here"
    (run / "checkpoints").mkdir(parents=True)
    shutil.copy(translator.loaded.path, run / "checkpoints/checkpoint_best.pt")
    flags = {"--max-len-b": "12"}
    save_record(run, with_value(scored_record(), "evaluations.test.setup.flags", flags))
    keep_preparation(run / "preparation", open_data_bin(data))
    (tmp_path / "runs").mkdir()
    run.rename(tmp_path / "runs/model")
    for folder in (tmp_path, tmp_path / "runs/model/checkpoints"):
        monkeypatch.chdir(folder)
        assert relumt.load(tmp_path / named, cpu=True).translate(texts()) == translator.translate(texts())


def test_a_mechanism_without_weights_and_an_empty_text_have_no_alignment(translator):
    model = build("inhibitor", "--inhibitor-implementation", "cdist").eval()
    inhibitor = Translator(replace(translator.loaded, model=model), translator.encoding, SearchSettings(max_len_b=3))
    assert inhibitor.align(inhibitor.translate(["w3 w4"])) == [None]
    assert translator.align(translator.translate([""])) == [None]


def test_input_that_cannot_be_translated_is_refused(translator):
    with pytest.raises(TypeError, match="got one string; put it in a list"):
        translator.translate("w1 w2")
    with pytest.raises(ValueError, match="unit must be one of subwords, words, not 'word'"):
        translator.align([], unit="word")
    longest = translator.loaded.max_positions[0]
    with pytest.raises(UserError, match=rf"^line 8: has {longest + 1} subwords, .* at most {longest}; split the line$"):
        translator.translate_nbest(["w1", "w2 " * longest], 1, first_number=7)
    for beam, nbest in ((2, 3), (5, 0), (10**6, 1)):
        with pytest.raises(UserError, match="choose a"):
            translator.translate_nbest(["w1"], nbest, beam)


def test_the_search_is_that_of_the_evaluation(capsys):
    record = scored_record()
    assert search_of_run(None) == search_of_run(replace(record, evaluations={})) == SearchSettings()
    flags = {"--beam": "4", "--lenpen": "0.6", "--unnormalized": "", "--sampling": "", "--batch-size": "9"}
    record = with_value(record, "evaluations.test.setup.flags", flags)
    assert search_of_run(record) == SearchSettings(beam=4, lenpen=0.6, unnormalized=True)
    assert "was evaluated with --sampling; translating without" in capsys.readouterr().err
    for flag, value in (("--beam", "many"), ("--beam", "0"), ("--length-penalty", "other"), ("--temperature", "0")):
        with pytest.raises(UserError, match=r"^run.json: not a search"):
            settings_of_flags({flag: value}, "run.json")


@pytest.fixture
def translate(monkeypatch, capsys, translator):
    """Return a function that runs the command on bytes, and returns its lines."""

    monkeypatch.setattr("relumt.runs.inference.translator.load", lambda *_: translator)

    def run(content, *flags):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        main(["translate", "a run", *flags])
        return capsys.readouterr().out.split("\n")[:-1]

    return run


def test_lines_in_are_lines_out(translate, translator):
    content = b"w1 w2\r\n\n w3 \xe6\xbc\xa2 \n  \nw4 w5"
    expected = [x.text for x in translator.translate(["w1 w2", "", "w3 漢", "", "w4 w5"])]
    assert translate(content) == expected and expected[1] == expected[3] == ""
    assert translate(content, "--batch", "1") == expected
    assert translate(b"") == []
    described = [json.loads(line) for line in translate(content, "--json", "--nbest", "2", "--alignments")]
    assert [len(line["translations"]) for line in described] == [2, 0, 2, 0, 2]
    best = described[0]["translations"][0]
    assert best["text"] == expected[0] and set(best) == {"text", "score", "tokens", "token_scores", "alignment"}
    assert described[2]["source_tokens"] == ["w3", "<unk>"]


@pytest.mark.parametrize(
    ("content", "flags", "message"),
    [
        (b"w1\n\xff\xfe\n", (), "standard input:2: not valid UTF-8"),
        (b"w1 " * 2000, (), "line 1: has 2001 subwords"),
        (b"w1", ("--nbest", "2"), "need --json"),
        (b"w1", ("--json", "--nbest", "9"), "the beam is 5"),
    ],
)
def test_unusable_input_is_refused_in_one_line(translate, capsys, content, flags, message):
    with pytest.raises(SystemExit) as stopped:
        translate(content, *flags)
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and message in error and error.count("\n") == 1
