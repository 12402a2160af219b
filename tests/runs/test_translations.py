import dataclasses

import pytest

from relumt.errors import UserError
from relumt.runs.data_bin import open_data_bin
from relumt.runs.translations import GeneratedOutput, align_translations, read_generated, read_speed
from tests.runs.cases import write_data_bin

OUTPUT = """\
S-1\tein Hund .
T-1\ta <<unk>> .
H-1\t-0.5\ta dog .
D-1\t-0.5\ta dog .
P-1\t-0.5 -0.5
D-1\t-0.9\tthe second best .
S-0\tja
T-0\tyes
D-0\t-0.1\t
Generate test with beam=5: BLEU4 = 0.00
"""


def test_output_is_read_by_index_and_the_best_hypothesis_is_used(tmp_path):
    path = tmp_path / "generate-test.txt"
    path.write_text(OUTPUT)
    generated = read_generated(path)
    assert generated.hypotheses == {0: "", 1: "a dog ."}
    assert generated.references == {0: "yes", 1: "a <<unk>> ."}
    for cut in ("\n".join(OUTPUT.splitlines()[:-1]), OUTPUT + OUTPUT[:20]):  # killed, or mixed with another's
        path.write_text(cut)
        with pytest.raises(UserError, match="is truncated"):
            read_generated(path)


def test_speed_is_found_in_either_file(tmp_path):
    log, output = tmp_path / "log", tmp_path / "output"
    log.write_text("nothing\n")
    message = "Translated 1,016 sentences (9,216 tokens) in 8.0s (127.00 sentences/s, 1152.13 tokens/s)\n"
    for start in ("2026-01-01 10:00:00 | INFO | fairseq_cli.generate | ", "INFO:fairseq_cli.generate:"):
        output.write_text(start + message)
        assert read_speed(log, output) == 1152.13
    assert read_speed(log) is None


@pytest.fixture
def data_bin(tmp_path):
    folder = write_data_bin(tmp_path / "bin", sentences=2)
    (folder / "text").mkdir()
    (folder / "text" / "test.en").write_text("It &apos;s ( a ) dog .\nyes\n")
    (folder / "text" / "test.raw.en").write_text("It's (a)  dog.\nYes\n")
    return open_data_bin(folder)


GENERATED = GeneratedOutput({1: "yes", 0: "It &apos;s a dog ."}, {1: "yes", 0: "It <<unk>> dog ."})


def test_references_of_a_plain_data_bin_come_from_its_dictionary(data_bin):
    translations = align_translations(GENERATED, data_bin, "test")
    assert translations.tokenized_references == ["It <<unk>> dog .", "yes"]
    assert translations.hypotheses == ["It's a dog.", "yes"]


def test_references_of_a_prepared_data_bin_are_its_texts(data_bin):
    prepared = dataclasses.replace(data_bin, prepared=True, plain_references=True)
    translations = align_translations(GENERATED, prepared, "test")
    assert translations.tokenized_references == ["It &apos;s ( a ) dog .", "yes"]
    assert translations.references == ["It's (a)  dog.", "Yes"]
    assert translations.tokenized_hypotheses == ["It &apos;s a dog .", "yes"]


def test_untokenized_text_is_tokenized(data_bin):
    data_bin = dataclasses.replace(data_bin, tokenized=False)
    generated = GeneratedOutput({0: "It's me.", 1: "yes"}, {0: "It's you.", 1: "no"})
    translations = align_translations(generated, data_bin, "test")
    assert (translations.hypotheses, translations.references) == (["It's me.", "yes"], ["It's you.", "no"])
    assert translations.tokenized_hypotheses == ["It &apos;s me .", "yes"]
    assert translations.tokenized_references == ["It &apos;s you .", "no"]


@pytest.mark.parametrize("hypotheses", [{1: "a"}, {0: "a", 1: "b", 2: "c"}])
def test_every_sentence_must_be_translated(data_bin, hypotheses):
    prepared = dataclasses.replace(data_bin, prepared=True)
    with pytest.raises(UserError, match="have no translation or no reference"):
        align_translations(GeneratedOutput(hypotheses, {}), prepared, "test")
