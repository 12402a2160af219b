"""Word alignments: merging subwords, links, gold files, and the error rate against a worked example and NLTK."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from nltk.translate import Alignment
from nltk.translate.metrics import alignment_error_rate

from relumt.corpora.alignment import GoldAlignment, count_links, error_rate, links_of_largest_weight, read_alignments
from relumt.errors import UserError

LINK = st.tuples(st.integers(0, 3), st.integers(0, 3))


def test_error_rate_by_hand():
    gold = GoldAlignment(frozenset({(0, 0), (1, 1)}), frozenset({(0, 0), (1, 1), (2, 1)}))
    found = count_links(frozenset({(0, 0), (2, 1), (3, 3)}), gold)
    assert found == (3, 1, 2, 2)  # predicted, of them sure and possible, and all sure ones
    assert error_rate(found) == pytest.approx(1 - 3 / 5)
    both = [a + b for a, b in zip(found, count_links(frozenset({(1, 1)}), gold), strict=True)]
    assert error_rate(both) == pytest.approx(1 - (2 + 3) / (4 + 4))
    assert error_rate((0, 0, 0, 0)) == 0


@given(st.frozensets(LINK, min_size=1), st.frozensets(LINK, min_size=1), st.frozensets(LINK))
def test_error_rate_agrees_with_the_definition_and_nltk(found, sure, more):
    gold = GoldAlignment(sure, sure | more)
    rate = error_rate(count_links(found, gold))
    assert rate == 1 - (len(found & sure) + len(found & gold.possible)) / (len(found) + len(sure))
    assert rate == pytest.approx(alignment_error_rate(Alignment(sure), Alignment(found), Alignment(gold.possible)))


def test_a_word_with_no_weight_has_no_link():
    weights = torch.tensor([[[0.0, 0.4], [0.0, 0.0]], [[0.3, 0.1], [0.2, 0.2]]])
    assert links_of_largest_weight(weights) == [{(1, 0)}, {(0, 0), (0, 1)}]


@pytest.mark.parametrize(
    ("text", "start"),
    [("0-0 1p2 0p0\n\n2-1 0?1\n", 0), ("1-1 2p3\n\n3-2 1?2\n", 1), ("1 1 1\n1 2 3 P\n3 3 2 S\n3 1 2 P\n", 1)],
)
def test_both_file_formats_are_read(tmp_path, text, start):
    (tmp_path / "gold").write_text(text)
    first, empty, third = read_alignments(tmp_path / "gold", start)
    assert first == GoldAlignment(frozenset({(0, 0)}), frozenset({(0, 0), (1, 2)}))
    assert empty == GoldAlignment(frozenset(), frozenset())
    assert third == GoldAlignment(frozenset({(2, 1)}), frozenset({(2, 1), (0, 1)}))


def test_numbered_links_are_checked_against_the_number_of_pairs(tmp_path):
    (tmp_path / "gold").write_text("1 1 1\n2 2 3\n")
    assert [len(gold.sure) for gold in read_alignments(tmp_path / "gold", 1, 4)] == [1, 1, 0, 0]
    with pytest.raises(UserError, match=r"gold:2: found sentence pair 2, expected 1 to 1"):
        read_alignments(tmp_path / "gold", 1, 1)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1-1\n1-x\n", r"gold:2: expected a link .*, found '1-x'"),
        ("1-1\n0-1\n", "sentence pair 2 links word 0, but"),
        ("1 1 1\n0 1 1\n", "gold:2: found sentence pair 0, expected 1 to"),
        ("\n", "found only empty lines"),
    ],
)
def test_invalid_lines_are_named(tmp_path, text, message):
    (tmp_path / "gold").write_text(text)
    with pytest.raises(UserError, match=message):
        read_alignments(tmp_path / "gold", 1)
