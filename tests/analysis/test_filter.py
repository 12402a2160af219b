"""`relumt filter`: scores equal those of single pairs, in order, and --keep and --threshold select the right pairs."""

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from relumt.analysis import filter as corpus_filter
from relumt.cli import main
from relumt.runs.inference.loaded_model import LoadedModel
from tests.plugin.model.build import build, dictionary, task, write_data_bin

TEXT = [
    ("w1 w2 w3", "w4 w5"),
    ("w6", "w7 w8 w9 w1"),
    ("w2 w2 w2 w2 w2 w2 w2", "w3"),
    ("w5 unheard", "w1 w2"),
    ("w9", "w9"),
]


@pytest.fixture
def files(tmp_path):
    write_data_bin(tmp_path / "data-bin", [(3, 3)], "train")
    for side, name in enumerate(("f.de", "f.en")):
        (tmp_path / name).write_text("".join(f"{pair[side]}\n" for pair in TEXT))
    return tmp_path


def run(folder, checkpoint, *options):
    main(["filter", "--checkpoint", str(checkpoint), "--data", str(folder / "data-bin"), "--src", str(folder / "f.de"),
          "--tgt", str(folder / "f.en"), "--out", str(folder / "out"), *map(str, options)])  # fmt: skip
    return [tuple(map(float, line.split("\t"))) for line in (folder / "out.scores").read_text().splitlines()]


@pytest.mark.parametrize("max_tokens", [1, 12, 4096])
def test_scores_do_not_depend_on_the_batch(max_tokens, monkeypatch):
    monkeypatch.setattr(corpus_filter, "BUFFER_SIZE", 3)
    model, words = build("mechanism_transformer", "--attention", "rela_i").eval().double(), dictionary()
    loaded = LoadedModel(None, model, task(), False)
    encode = lambda line: words.encode_line(line, add_if_not_exist=False).long()  # noqa: E731
    pairs = [(encode(source), encode(target)) for source, target in TEXT]
    scores = list(corpus_filter.score_pairs(loaded, pairs, max_tokens))
    for (source, target), score in zip(pairs, scores, strict=True):
        given = torch.cat([target[-1:], target[:-1]])[None]
        logits, _ = model(source[None], torch.tensor([len(source)]), given)
        assert score.cross_entropy == pytest.approx(F.cross_entropy(logits[0], target).item())
    assert len({score.null_rate for score in scores}) > 1 and all(0 <= score.null_rate <= 1 for score in scores)


def test_pairs_with_the_lowest_scores_are_kept(files, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_i")
    scores = run(files, checkpoint, "--by", "cross_entropy", "--keep", "0.4")
    least = sorted(range(5), key=lambda number: scores[number][1])[:2]
    assert (files / "out.de").read_text().splitlines() == [TEXT[number][0] for number in sorted(least)]
    assert (files / "out.en").read_text().splitlines() == [TEXT[number][1] for number in sorted(least)]
    assert "2 of 5 pairs by cross_entropy" in capsys.readouterr().err
    run(files, checkpoint, "--threshold", "1")
    assert (files / "out.de").read_text() == (files / "f.de").read_text()


def test_a_special_symbol_in_a_text_is_an_unknown_word(files, checkpoint_with):
    scores = set()
    for word in ("unheard", "<pad>", "</s>"):
        for name in ("f.de", "f.en"):
            (files / name).write_text(f"w1 {word} w2\n")
        scores.add(*run(files, checkpoint_with("--attention", "rela_i")))
    assert len(scores) == 1


def test_pairs_beyond_the_maximum_positions_have_no_score_and_are_left_out(files, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_i", "--max-source-positions", "5")
    scores = run(files, checkpoint, "--keep", "1")
    assert scores[2][0] != scores[2][0] and scores[0][0] == scores[0][0]
    assert "5 pairs, 1 too long for the model" in capsys.readouterr().err
    assert len((files / "out.en").read_text().splitlines()) == 4


def test_a_model_without_null_rows_cannot_rank_by_them(files, capsys, checkpoint_with):
    with pytest.raises(SystemExit, match="2"):
        run(files, checkpoint_with("--attention", "inhibitor"))
    assert "never has null rows; use --by cross_entropy" in capsys.readouterr().err.splitlines()[-1]
    assert not list(files.glob("out*"))


def test_pairs_with_equal_scores_are_ranked_by_cross_entropy_and_those_without_are_left_out():
    scores = np.array([[0.5, 3.0], [0.1, 9.0], [math.nan, math.nan], [0.5, 2.0], [0.5, 1.0]])
    for share, kept in ((0.25, [1]), (0.5, [1, 4]), (0.75, [1, 3, 4]), (1, [0, 1, 3, 4])):
        assert np.flatnonzero(corpus_filter.select_lowest(scores, "null_rate", share)).tolist() == kept
