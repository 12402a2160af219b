"""`relumt analyze`: its results, and its messages for input that it cannot use."""

import gzip
import json
import math
from pathlib import Path

import pytest
import torch

from relumt.analysis.attention_maps import AlignmentScorer, MapCollector
from relumt.analysis.measure import AnalysisConfig, load_gold_alignments
from relumt.analysis.record import read_analysis
from relumt.cli import main
from relumt.commands.analysis import short_names
from relumt.corpora.alignment import GoldAlignment, count_links, error_rate, have_no_first_word, links_of_largest_weight
from relumt.errors import UserError
from relumt.runs.inference.loaded_model import load_model
from relumt.runs.record import save_record
from relumt.runs.run_config import find_checkpoint
from tests.plugin.model.build import write_data_bin
from tests.runs.cases import scored_record, with_value

LENGTHS = [(7, 5), (3, 8), (1, 2)]


@pytest.fixture
def data(tmp_path):
    return write_data_bin(tmp_path / "data-bin", LENGTHS)


def analyze(*arguments):
    main(["analyze", *map(str, arguments)])


def test_units_are_recorded_and_words_have_fewer_queries(tmp_path, data, checkpoint_with):
    prepared = dict.fromkeys(("tokenized", "lowercased", "plain_references"), False)
    # No symbol starts with a marker of sentencepiece, so each sentence is one word and the end of the sentence.
    (data / "prepare.json").write_text(
        json.dumps(prepared | {"source": "de", "target": "en", "bpe": "sentencepiece"}), encoding="utf-8"
    )
    for units in ("subwords", "words"):
        analyze(checkpoint_with(), "--data", data, "--out", tmp_path / units, "--numbers-only", "--units", units)
    results = [read_analysis(tmp_path / units / "analysis.json").checkpoints[0] for units in ("subwords", "words")]
    assert [analysis.unit for analysis in results] == ["subwords", "words"]
    for subwords, words in zip(*(analysis.attention.values() for analysis in results), strict=True):
        assert words.num_queries == 2 * len(LENGTHS) - (words.site == "encoder") < subwords.num_queries
        assert words.null_rate_shuffled == subwords.null_rate_shuffled == [0.0, 0.0]
    assert results[0].feedforward == results[1].feedforward


def test_labels_are_the_shortest_unambiguous_part_of_the_path(tmp_path):
    runs = [tmp_path / dataset / "softmax" / "1" for dataset in ("short", "long")]
    for run in runs:
        run.mkdir(parents=True)
    assert short_names(runs[:1]) == ["softmax/1"]
    assert short_names([Path("/")]) == ["/"]
    assert short_names([*runs, tmp_path / "checkpoint.pt"]) == [
        "short/softmax/1", "long/softmax/1", str(tmp_path / "checkpoint.pt")
    ]  # fmt: skip
    best, last = (runs[0] / "checkpoints" / name for name in ("checkpoint_best.pt", "checkpoint_last.pt"))
    assert short_names([best]) == ["softmax/1"]
    assert short_names([best, last]) == [str(best), str(last)]


def test_pairs_beyond_the_maximum_positions_are_left_out_and_targets_shuffled_among_the_others(
    tmp_path, checkpoint_with
):
    data = write_data_bin(tmp_path / "data-bin", [(7, 5), (3, 8), (1, 2), (2, 9), (4, 4)])
    checkpoint = checkpoint_with("--attention", "rela_i", "--max-source-positions", "6")
    analyze(checkpoint, "--data", data, "--out", tmp_path, "--numbers-only", "--max-tokens", "2")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert (analysis.num_pairs, analysis.num_pairs_too_long) == (4, 1)
    for layer in analysis.attentions("encoder"):  # the encoder does not read the targets
        assert layer.null_rate == pytest.approx(layer.null_rate_shuffled)
    loaded, _ = load_model(checkpoint, data, cpu=True)
    loaded.load_subset("test")
    fitting = loaded.fitting_indices("test").tolist()
    assert [len(batch["id"]) for batch in loaded.batches("test", 6)] == [1] * 4, "the long pair makes none larger"
    shuffled = loaded.task.dataset(loaded.shuffle_targets("test"))
    targets = {pair: loaded.task.dataset("test")[pair]["target"].tolist() for pair in fitting}
    for pair in fitting:
        assert shuffled[pair]["target"].tolist() in [targets[other] for other in fitting if other != pair]


def test_a_single_pair_has_no_shuffled_targets(tmp_path, checkpoint_with):
    data = write_data_bin(tmp_path / "data-bin", [(3, 8)])
    analyze(checkpoint_with(), "--data", data, "--out", tmp_path, "--numbers-only")
    (analysis,) = read_analysis(tmp_path / "analysis.json").checkpoints
    assert all(layer.null_rate_shuffled is None for layer in analysis.attention.values())


def test_a_diverged_model_is_refused(tmp_path, data, capsys, checkpoint_with):
    checkpoint = tmp_path / "checkpoint_best.pt"
    state = torch.load(checkpoint_with(), weights_only=False)
    state["model"]["decoder.layers.1.fc2.weight"][0, 0] = math.nan
    torch.save(state, checkpoint)
    with pytest.raises(SystemExit):
        analyze(checkpoint, "--data", data, "--out", tmp_path / "out")
    assert "the decoder's output is not finite" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("flags", "options", "message"),
    [
        ([], ["--alignments", "GOLD"], "gold has 1 alignments, but the text has 3 pairs"),
        (["--arch", "transformer"], [], "expected one of relumt's architectures"),
    ],
)
def test_invalid_input_ends_in_one_line_without_files(tmp_path, data, capsys, checkpoint_with, flags, options, message):
    (tmp_path / "gold").write_text("0-0\n")
    options = [tmp_path / "gold" if option == "GOLD" else option for option in options]
    with pytest.raises(SystemExit, match="2"):
        analyze(checkpoint_with(*flags), "--data", data, *options, "--out", tmp_path / "out")
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out").exists()


@pytest.fixture
def aligned_data(data):
    write_data_bin(data, LENGTHS, "train")
    (data / "text").mkdir()
    (data / "text" / "test.align").write_text("6-4 0-0\n0-1\n\n")
    return data


def test_links_that_count_words_from_1_are_refused(aligned_data, checkpoint_with, capsys):
    """The first pair has 6 and 4 words."""
    checkpoint = checkpoint_with("--attention", "relu")
    gold = aligned_data / "gold"
    gold.write_text("6-4 1-1\n1-2\n\n")
    arguments = ["analyze", str(checkpoint), "--data", str(aligned_data), "--alignments", str(gold), "--cpu"]
    with pytest.raises(SystemExit):
        main([*arguments, "--out", str(aligned_data / "out")])
    assert "pair 1 links a word after the last, and no pair links word 0" in capsys.readouterr().err
    main([*arguments, "--out", str(aligned_data / "out"), "--first-word", "1"])
    assert "left out" not in capsys.readouterr().err


def test_links_that_may_count_words_from_1_have_no_0_on_either_side():
    for link, may_count_from_1 in (((1, 1), True), ((0, 1), False), ((1, 0), False)):
        links = frozenset({link, (8, 6)})
        assert have_no_first_word([GoldAlignment(links, links)]) == may_count_from_1


def test_norms_align_words_by_the_longest_vector(aligned_data, checkpoint_with):
    loaded, _ = load_model(checkpoint_with("--attention", "rela_g"), aligned_data, cpu=True)
    loaded.load_subset("test")
    links = [frozenset({(0, 0), (5, 3)}), frozenset({(0, 1)}), frozenset()]
    gold = [GoldAlignment(sure, sure) for sure in links]
    scorer = AlignmentScorer(gold, "none")
    kept, maps = (MapCollector(loaded.model, loaded.task, count, use_cross_maps=add) for count, add in
                  ((1, scorer.add), (3, None)))  # fmt: skip
    for batch in loaded.batches("test", 100):
        with kept.observe(batch), maps.observe(batch):
            loaded.force_decode(batch)
    assert [sentence.index for sentence in kept.result()] == [0] and len(kept.result()[0].maps) == 6
    for module, layer in scorer.result().norm_layers.items():
        for query, shift in (("normal", 0), ("shifted", 1)):
            counts = torch.zeros(3, 4)  # two heads, and both together
            for sentence, pair in zip(maps.result()[:2], gold, strict=False):  # the third pair has no words
                words = len(sentence.target) - 1  # a token is a word; the end of the sentence has no links
                together = torch.cat((sentence.norms[module], sentence.joint_norms[module][None]))
                found = links_of_largest_weight(together[:, shift : shift + words, :-1])
                counts += torch.tensor([count_links(links, pair) for links in found])
            errors = getattr(layer, query)
            assert [*errors.heads, errors.mean_weights] == pytest.approx([100 * error_rate(x) for x in counts.tolist()])


def gold_of(loaded, data, **options):
    found, path = load_gold_alignments(loaded, data, 3, AnalysisConfig(data, "test", **options))
    return found and found[0].sure, path


def test_the_data_bins_own_alignments_fit_either_direction_unless_their_number_differs(aligned_data, checkpoint_with):
    path = aligned_data / "text" / "test.align"
    for flags, link in (([], (6, 4)), (["--source-lang", "en", "--target-lang", "de"], (4, 6))):
        loaded, _ = load_model(checkpoint_with(*flags), aligned_data, cpu=True)
        assert gold_of(loaded, aligned_data) == ({link, (0, 0)}, path)
    path.write_text("0-0 1-1\n" * 9)  # of the sentences, if the pairs are documents
    assert gold_of(loaded, aligned_data) == (None, path)


def test_the_name_of_a_file_says_which_word_of_a_link_comes_first(tmp_path, data, checkpoint_with):
    """The model translates from German to English."""
    loaded, _ = load_model(checkpoint_with(), data, cpu=True)
    for name, link in {"gold": (6, 4), "gold.de-en.align": (6, 4), "gold.en-de.align.gz": (4, 6)}.items():
        with (gzip.open if name.endswith(".gz") else open)(tmp_path / name, "wt", encoding="utf-8") as file:
            file.write("6-4 0-0\n0-1\n\n")
        assert gold_of(loaded, data, alignments=tmp_path / name)[0] == {link, (0, 0)}


def test_a_run_stands_for_its_scored_checkpoint(tmp_path):
    for name in ("checkpoint_best.pt", "checkpoint_average_5.pt"):
        (tmp_path / "checkpoints").mkdir(exist_ok=True)
        (tmp_path / "checkpoints" / name).touch()
    assert find_checkpoint(tmp_path).name == "checkpoint_best.pt"
    record = with_value(scored_record(), "evaluations.test.setup.checkpoint", "checkpoint_average_5.pt")
    save_record(tmp_path, record)
    assert find_checkpoint(tmp_path).name == "checkpoint_average_5.pt"
    (tmp_path / "checkpoints" / "checkpoint_average_5.pt").unlink()
    with pytest.raises(UserError, match=r"checkpoint_average_5.pt: no such checkpoint; give a checkpoint_\*.pt"):
        find_checkpoint(tmp_path)
