"""Shifted pairs are found by their lengths, on invented lengths with the correlation of real sentences."""

import numpy as np
import pytest

from relumt.corpora.shifted_pairs import BLOCK, Shift, find_shifts


def lengths(count, seed=1):
    """Lengths of sentences and their translations, whose logarithms have a correlation of 0.9, as in Multi30k."""
    generator = np.random.default_rng(seed)
    source = generator.lognormal(4, 0.5, count)
    return source.round(), (source * generator.lognormal(0, 0.24, count)).round()


def moved(target, first, last, offset):
    """Insert `offset` lines before `first` and remove as many before `last`, or, if it is negative, the reverse."""
    extra = np.zeros(abs(offset))
    if offset > 0:
        return np.concatenate([target[:first], extra, target[first : last - offset], target[last:]])
    return np.concatenate([target[:first], target[first - offset : last], extra, target[last:]])


@pytest.mark.parametrize("offset", [1, -1, 2, -3])
@pytest.mark.parametrize(("first", "last"), [(700, 2300), (0, 250), (4700, 5000)])
def test_shifts_are_found_to_within_a_block(offset, first, last):
    source, target = lengths(5000)
    (found,) = find_shifts(source, moved(target, first, last, offset))
    assert found.offset == offset
    assert found.first == pytest.approx(first, abs=BLOCK) and found.last == pytest.approx(last, abs=BLOCK)


def test_separate_shifts_are_told_apart():
    source, target = lengths(3000)
    target = moved(moved(target, 500, 800, 1), 1800, 2000, -2)
    assert [shift.offset for shift in find_shifts(source, target)] == [1, -2]


@pytest.mark.parametrize("seed", range(5))
def test_nothing_is_found_in_text_that_is_not_shifted(seed):
    source, target = lengths(30_000, seed)
    assert find_shifts(source, target) == []
    order = np.argsort(source)
    assert find_shifts(source[order], target[order]) == []  # sorted by length: lines beside it fit as well
    shuffled = np.random.default_rng(seed).permutation(target)
    assert find_shifts(source, shuffled) == []  # no translations at all
    assert find_shifts(np.ones(1000), target[:1000]) == []
    assert find_shifts(source[:BLOCK], target[1 : BLOCK + 1]) == []  # too few


def test_lines_are_counted_from_0():
    source, target = lengths(BLOCK + 6)
    assert find_shifts(source, np.append(0, target[:-1])) == [Shift(3, BLOCK + 2, 1)]


def test_preparing_says_so(bitext, capsys):
    source, target = lengths(400)
    pairs = [("a " * int(s / 6 + 1), "b " * int(t / 6 + 1)) for s, t in zip(source, target, strict=True)]
    bitext.write("train", pairs)
    bitext.prepare("--bpe", "none")
    assert "seem to be shifted" not in capsys.readouterr().err
    texts = [text for _, text in pairs]
    shifted = [*texts[:100], "", *texts[100:300], *texts[301:]]
    bitext.write("train", [(source, text) for (source, _), text in zip(pairs, shifted, strict=True)])
    bitext.prepare("--bpe", "none", "--overwrite")
    (message,) = [line for line in capsys.readouterr().err.splitlines() if "shifted" in line]
    assert f"{bitext.folder}/train.en: sentences 104 to 303 seem to be shifted: by its length, sentence n of" in message
    assert "train.de fits sentence n+1" in message
