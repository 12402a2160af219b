import io
import pickle

import pytest
from hypothesis import given
from subword_nmt.apply_bpe import BPE

from relumt.corpora.bpe import BPE_METHODS
from relumt.errors import UserError
from tests.corpora.cases import PAIRS, awkward_lines

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
    unseen = ["Das Pferdchen ﬁel ½ um 日本 , <s> !"]  # NFKC would change it
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
