import io
import pickle
from collections import Counter
from contextlib import redirect_stderr

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from relumt.corpora.bpe import BPE_METHODS, learn_merges
from relumt.errors import UserError
from tests.corpora.cases import awkward_lines

UNDO = {
    "subword-nmt": lambda line: line.replace("@@ ", ""),
    "sentencepiece": lambda line: line.replace(" ", "").replace("▁", " ").strip(),
}


@pytest.fixture
def lines(pairs):
    return [side for pair in pairs for side in pair]


@pytest.fixture
def text(tmp_path, lines):
    path = tmp_path / "text"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", BPE_METHODS)
def test_subwords_join_to_the_text(name, text, lines, tmp_path, capfd):
    steps = []
    assert BPE_METHODS[name].learn([text], 60, tmp_path, steps.append) == 60
    assert sum(steps) == 60
    segment = BPE_METHODS[name].load(tmp_path)
    unseen = ["Das Pferdchen ﬁel ½ um 日本 , <s> !"]  # NFKC would change it
    for text_lines in (lines, unseen):
        assert segment(text_lines) != text_lines
        assert [UNDO[name](line) for line in segment(text_lines)] == text_lines
        assert pickle.loads(pickle.dumps(segment))(text_lines) == segment(text_lines)
    assert capfd.readouterr() == ("", "")


def test_subword_nmt_learns_from_both_files(text, lines, tmp_path):
    other = tmp_path / "other"
    other.write_text("Pferdewagen Pferdehof\n", encoding="utf-8")
    BPE_METHODS["subword-nmt"].learn([text, other], 50, tmp_path, lambda merges: None)
    with (tmp_path / "expected").open("w", encoding="utf-8") as expected:
        learn_bpe([*lines, "Pferdewagen Pferdehof"], expected, 50)
    assert (tmp_path / "bpe.codes").read_bytes() == (tmp_path / "expected").read_bytes()


def test_sizes_that_cannot_be_learned(text, tmp_path):
    with pytest.raises(UserError, match=r"--vocab-size 5000 pieces: Vocabulary size too high .* <= \d+"):
        BPE_METHODS["sentencepiece"].learn([text], 5000, tmp_path, lambda pieces: None)
    for few in ("a b", "ab cd"):
        text.write_text(f"{few}\n", encoding="utf-8")
        with pytest.raises(UserError, match="no pair of letters occurs twice"):
            BPE_METHODS["subword-nmt"].learn([text], 10, tmp_path, lambda merges: None)


@given(line=awkward_lines)
def test_subwords_are_those_of_subword_nmt(tmp_path_factory, line):
    codes = "#version: 0.2\nr d</w>\no rd</w>\nW ord</w>\n. .\n5 ,\na a</w>\n@ @</w>\n&lt ;</w>\n"
    folder = tmp_path_factory.mktemp("codes")
    (folder / "bpe.codes").write_text(codes)
    line = line.strip(" ")
    assert BPE_METHODS["subword-nmt"].load(folder)([line]) == [BPE(io.StringIO(codes)).process_line(line)]


def expect_merges(words, num_merges):
    """Return what subword-nmt learns."""
    output = io.StringIO()
    with redirect_stderr(io.StringIO()):
        learn_bpe([" ".join(words)], output, num_merges)
    return [tuple(line.split(" ")) for line in output.getvalue().splitlines()[1:]]


# Few letters, so that symbols repeat in a word and frequencies are equal
few_letters = st.lists(st.text("ab\\é<", min_size=1, max_size=12), min_size=1, max_size=60)


@settings(max_examples=200, deadline=None)
@given(few_letters.filter(lambda words: max(map(len, words)) > 1), st.sampled_from([1, 5, 300]))
def test_merges_are_those_of_subword_nmt(words, num_merges):
    assert list(learn_merges(Counter(words), num_merges)) == expect_merges(words, num_merges)


@pytest.mark.parametrize("letters", ["abc", "abcdefghijklmnop"])
def test_many_merges_are_those_of_subword_nmt(letters):
    """Rare pairs are set aside and come back several times."""
    numbers = range(3000)
    words = ["".join(letters[(number * 7919 >> shift) % len(letters)] for shift in range(9)) for number in numbers]
    merges = list(learn_merges(Counter(words), 2000))
    assert merges == expect_merges(words, 2000)
    assert len(merges) > 500
