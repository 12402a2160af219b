"""Punctuation is that of sacremoses, for every code of a language; subwords are those of subword-nmt."""

import io
import pickle

import pytest
from hypothesis import given, settings
from sacremoses import MosesPunctNormalizer
from subword_nmt.apply_bpe import BPE

from relumt.corpora.bpe import BPE_METHODS
from relumt.corpora.tokenization import (
    bleu_tokenizer,
    detokenize,
    normalize_punctuation,
    primary_language,
    tokenize,
)
from relumt.errors import UserError
from tests.corpora.cases import PAIRS, awkward_lines

LANGUAGES = ["en", "de", "fr", "fi", "ro", "zh"]  # each rule about apostrophes, quotation marks and letters


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=60, deadline=None)
@given(line=awkward_lines)
def test_punctuation_is_that_of_sacremoses(language, line):
    assert normalize_punctuation([line], language) == [MosesPunctNormalizer(lang=language).normalize(line)]


def test_moses_tokens():
    assert tokenize(["Das ist z.B. <ein> Hut, oder?"], "de") == ["Das ist z.B. &lt; ein &gt; Hut , oder ?"]
    assert tokenize(["Mr. Jones's hat isn't here."], "en") == ["Mr. Jones &apos;s hat isn &apos;t here ."]
    assert tokenize(["At 5 p.m. he left. He left at 5 p.m."], "en") == ["At 5 p.m. he left . He left at 5 p.m."]
    # Since 2014, tokenizer.perl has not split off an apostrophe that ends a line of English.
    assert tokenize(["rug, 8' x 10'"], "en") == ["rug , 8 &apos; x 10&apos;"]
    assert tokenize(["rug, 8' x 10' red"], "en") == ["rug , 8 &apos; x 10 &apos; red"]


ROUND_TRIPS = {
    "en": [
        *(
            "Yesterday’s news don’t matter.",
            "The students’ work",
            "O’Neill, in the ’90s",
            "They’re the dogs’, I’M SURE",
        ),
        *("Say &quot; yes &quot; &amp; <skipped> go", "x < y & z;", "👨‍👩‍👧 family 👨‍👩‍👧"),
    ],
    "fr": ["L'amitié nous a faits forts d'esprit.", "l’amitié d’aujourd’hui", "quelqu’un l’a dit"],
    "de": ["Wie geht’s Jörg’s Vater?", "Hans’ Auto", "‚Ja‘, sagt er"],
    "si": ["ශ්‍රී ලංකා"],
    "fa": ["می‌خواهم"],
}
"""Lines that tokenization splits in a way that Moses' detokenizer does not undo, or that look like such lines."""


@pytest.mark.parametrize(("language", "line"), [(code, line) for code in ROUND_TRIPS for line in ROUND_TRIPS[code]])
def test_detokenization_undoes_tokenization(language, line):
    expected = {"‚Ja‘, sagt er": "‚ Ja ‘, sagt er"}.get(line, line)  # as Moses does
    assert detokenize(tokenize([line], language), language) == [expected]


def test_a_closing_quotation_mark_is_left_to_moses():
    assert detokenize(["she said ‘ yes ’ to s him"], "en") == ["she said ‘ yes ’ to s him"]


def test_a_region_keeps_the_rules_of_the_language():
    assert tokenize(["It isn't here."], "en-US") == ["It isn &apos;t here ."]
    assert tokenize(["日本"], "zh_CN") == ["日 本"]
    assert detokenize(["l&apos; eau est"], "fr-CA") == ["l'eau est"]
    assert normalize_punctuation(['"Ja", sagt er.'], "DE-at") == ['"Ja", sagt er.']  # not '"Ja,"' as in English


@pytest.mark.parametrize(
    ("codes", "language"),
    [
        ("de deu ger deu_Latn de-DE DE-at", "de"),
        ("zh zho chi cmn zho_Hans zh_CN zh-Hant-TW", "zh"),
        ("ja jpn jpn_Jpan", "ja"),
        ("pt por pt_br pt-BR", "pt"),
        ("yue yue_Hant", "yue"),
        ("lv lav lvs_Latn", "lv"),
        ("part-1-of-10-languages", "part"),
    ],
)
def test_codes_of_one_language_have_the_same_rules(codes, language):
    assert {primary_language(code) for code in codes.split()} == {language}
    assert {bleu_tokenizer(code) for code in codes.split()} == {bleu_tokenizer(language)}


UNDO = {
    "subword-nmt": lambda line: line.replace("@@ ", ""),
    "sentencepiece": lambda line: line.replace(" ", "").replace("▁", " ").strip(),
}


LINES = [side for pair in PAIRS for side in pair]


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in LINES), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", BPE_METHODS)
def test_subwords_join_to_the_text(name, text, tmp_path, capfd):
    steps = []
    assert BPE_METHODS[name].learn([text], 60, tmp_path, steps.append) == 60
    assert sum(steps) == 60
    segment = BPE_METHODS[name].load(tmp_path)
    # NFKC would change the first, and sentencepiece's default the joiners of the others
    unseen = ["Das Pferdchen ﬁel ½ um 日本 , <s> !", "ශ්‍රී ලංකා", "👨‍👩‍👧 می‌خواهم"]
    for text_lines in (LINES, unseen):
        assert segment(text_lines) != text_lines
        assert [UNDO[name](line) for line in segment(text_lines)] == text_lines
        assert pickle.loads(pickle.dumps(segment))(text_lines) == segment(text_lines)
    assert capfd.readouterr() == ("", "")


def test_sizes_that_cannot_be_learned(text, tmp_path):
    with pytest.raises(UserError, match=r"--vocab-size 5000 pieces: Vocabulary size too high .* <= \d+"):
        BPE_METHODS["sentencepiece"].learn([text], 5000, tmp_path, lambda pieces: None)
    text.write_text("a b\n", encoding="utf-8")
    with pytest.raises(UserError, match="no pair of letters occurs twice"):
        BPE_METHODS["subword-nmt"].learn([text], 10, tmp_path, lambda merges: None)


@given(line=awkward_lines)
def test_subwords_are_those_of_subword_nmt(tmp_path_factory, line):
    codes = "#version: 0.2\nr d</w>\no rd</w>\nW ord</w>\n. .\n5 ,\na a</w>\n@ @</w>\n&lt ;</w>\n"
    folder = tmp_path_factory.mktemp("codes")
    (folder / "bpe.codes").write_text(codes)
    line = line.strip(" ")
    assert BPE_METHODS["subword-nmt"].load(folder)([line]) == [BPE(io.StringIO(codes)).process_line(line)]
