"""`relumt filter`: scores equal those of single pairs, in order, and --keep and --threshold select the right pairs."""

import gzip

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


@pytest.mark.parametrize("symbol", ["<pad>", "</s>", "<s>"])
def test_a_special_symbol_in_a_text_is_an_unknown_word(files, checkpoint_with, symbol):
    checkpoint = checkpoint_with("--attention", "rela_i")
    scores = []
    for word in ("unheard", symbol):
        for name in ("f.de", "f.en"):
            (files / name).write_text(f"w1 {word} w2\n")
        scores.append(run(files, checkpoint))
    assert scores[0] == scores[1]


def test_equal_scores_are_reported(files, capsys, checkpoint_with):
    run(files, checkpoint_with("--attention", "sigmoid"), "--keep", "0.5")
    message = "every pair has the same null_rate, so it does not rank them; --keep ranks by cross_entropy"
    assert message in capsys.readouterr().err


def test_pairs_beyond_the_maximum_positions_have_no_score_and_are_left_out(files, capsys, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_i", "--max-source-positions", "5")
    scores = run(files, checkpoint, "--keep", "1")
    assert scores[2][0] != scores[2][0] and scores[0][0] == scores[0][0]
    assert "5 pairs, 1 too long for the model" in capsys.readouterr().err
    assert len((files / "out.en").read_text().splitlines()) == 4


def test_gzipped_texts_are_read(files, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_i")
    expected = run(files, checkpoint)
    for name in ("f.de", "f.en"):
        (files / f"{name}.gz").write_bytes(gzip.compress((files / name).read_bytes()))
    assert run(files, checkpoint, "--src", files / "f.de.gz", "--tgt", files / "f.en.gz") == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--keep", "2"], "argument --keep: expected a number from 0 to 1"),
        (["--keep", "0.5", "--threshold", "1"], "not allowed with argument --keep"),
        (["--threshold", "nan"], "argument --threshold: expected a finite number, found 'nan'"),
        (["--tgt", "FDE"], "expected en, but the file name says de; swap --src and --tgt"),
        (
            ["--by", "cross_entropy", "--src", "FEN", "--tgt", "FDE"],
            "expected de, but the file name says en; swap --src and --tgt",
        ),
        (["--max-tokens", "0"], "argument --max-tokens: expected a whole number from 1"),
        (["--by", "cross_entropy", "--src", "none.de"], "none.de: no such file"),
        (["--by", "cross_entropy", "--src", "SHORT"], "short has 1 lines, "),
        ([], "never has null rows; use --by cross_entropy"),
        (["--by", "cross_entropy", "--out", "F"], "f.de: would overwrite the input"),
    ],
)
def test_invalid_input_ends_in_one_line_without_files(files, capsys, checkpoint_with, options, message):
    (files / "short").write_text("w1\n")
    checkpoint = checkpoint_with("--attention", "inhibitor")
    with pytest.raises(SystemExit) as stopped:
        paths = {"SHORT": "short", "F": "f", "FDE": "f.de", "FEN": "f.en"}
        run(files, checkpoint, *(files / paths[option] if option in paths else option for option in options))
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not list(files.glob("out*"))
    assert (files / "f.de").read_text().splitlines() == [source for source, _ in TEXT]


def test_a_model_without_null_rows_cannot_rank_by_them(files, capsys, checkpoint_with):
    with pytest.raises(SystemExit):
        run(files, checkpoint_with("--attention", "sparsemax"))
    assert "the cross-attention of this model never has null rows" in capsys.readouterr().err


def test_pairs_with_equal_scores_are_ranked_by_cross_entropy(files, monkeypatch, checkpoint_with):
    checkpoint = checkpoint_with("--attention", "rela_i")
    score_batch = corpus_filter.score_batch
    monkeypatch.setattr(
        corpus_filter,
        "score_batch",
        lambda *arguments: [score._replace(null_rate=0.0) for score in score_batch(*arguments)],
    )
    scores = run(files, checkpoint, "--keep", "0.6")
    least = sorted(sorted(range(5), key=lambda number: scores[number][1])[:3])
    assert (files / "out.de").read_text().splitlines() == [TEXT[number][0] for number in least]
