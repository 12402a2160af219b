"""How --lenpen is chosen on the validation set, and when it is chosen again."""

from pathlib import Path

import pytest

from relumt.runs.evaluation import SEARCH_FOLDER, is_scored_as_configured
from relumt.runs.evaluation_record import best_penalty
from relumt.runs.record import load_record
from relumt.runs.run_config import resolve_run_config
from relumt.runs.translations import read_generated
from tests.runs.cases import LONG, NBEST, SHORT, Step, write_checkpoint, write_dataset, write_prepared

DATA = Path("data-bin/small")
RUN = Path("runs/small/stock/1")


@pytest.fixture
def candidates(run, config, configs, fairseq):
    """A run that is evaluated on a dataset with values of --lenpen to compare."""
    write_dataset(configs, "small", length_penalties=[0.6, 1.0, 1.4])
    write_prepared(DATA, valid="a b c d\n", test="a b c d e\n")
    fairseq.steps = [Step(), Step(output=NBEST)]
    run("train")
    assert "--lenpen 1.0, by BLEU on valid (0.6: " in run("evaluate")
    return config


def started_subsets(fairseq, start):
    """Return the subsets that were translated since command number `start`, with --lenpen, --nbest and the folder."""
    flags = ("--gen-subset", "--lenpen", "--nbest", "--results-path")
    return [tuple(command.value(flag) for flag in flags) for command in fairseq.started[start:]]


def test_the_value_that_is_best_on_the_validation_set_is_chosen_once(run, fairseq, candidates):
    folder = candidates.folder
    search, test = ("valid", "0", "5", str(folder / SEARCH_FOLDER)), (None, "1.0", None, str(folder))
    assert started_subsets(fairseq, 1) == [search, test]
    record = load_record(folder)
    choice = record.length_penalty_search.choice
    assert choice.bleu["0.6"] < choice.bleu["1.0"] == choice.bleu["1.4"] and choice.chosen == "1.0"
    assert record.test_evaluation.setup.length_penalty == choice
    assert "test evaluated already" in run("evaluate") and len(fairseq.started) == 3
    run("evaluate", "--lenpen", "2")  # what the user gives is not chosen
    assert started_subsets(fairseq, 3) == [(None, "2", None, str(folder))]


SEARCHES = {
    "beam": lambda configs: ["--beam", "2"],
    "other candidates": lambda configs: write_dataset(configs, "small", length_penalties=[0.6, 1.0]),
    "checkpoint": lambda configs: write_checkpoint(RUN, updates=7),
    "data": lambda configs: (DATA / "valid.de-en.en.bin").write_bytes(b"x"),
}


@pytest.mark.parametrize("change", SEARCHES)
def test_the_choice_is_made_again_if_it_could_differ(run, fairseq, candidates, configs, change):
    found = SEARCHES[change](configs)
    fairseq.steps = [Step(output=NBEST)]
    run("evaluate", *(found if isinstance(found, list) else []))
    assert "valid" in started_subsets(fairseq, 3)[0]


def test_an_incomplete_search_starts_over(run, fairseq, config, configs):
    write_dataset(configs, "small", length_penalties=[0.6, 1.0])
    fairseq.steps = [Step(), Step(output=NBEST[:40]), Step(output=NBEST)]
    run("train")
    assert "truncated" in run("evaluate", status=2)
    run("evaluate")
    assert [command.value("--gen-subset") for command in fairseq.started[1:]] == ["valid", "valid", None]


def test_only_a_choice_from_the_same_values_counts_as_configured(candidates, configs):
    def is_scored(**settings):
        write_dataset(configs, "small", **settings)
        config = resolve_run_config("small", "stock", 1, configs, Path("runs"), None)
        return is_scored_as_configured(config, load_record(candidates.folder))

    assert is_scored(length_penalties=[1.4, 1.0, 0.6])
    assert not is_scored(length_penalties=[1.0, 0.6]) and not is_scored()
    assert not is_scored(length_penalties=[0.6, 1.0, 1.4], generate="--beam 1")


def test_a_choice_without_a_validation_set_is_refused(run, candidates):
    (DATA / "valid.de-en.en.idx").unlink()
    assert "the data-bin has no subset 'valid'" in run("evaluate", "--beam", "1", status=2)


def test_candidates_are_compared_with_the_formula_of_the_dataset(run, fairseq, config, configs):
    write_dataset(configs, "small", generate="--beam 5 --length-penalty gnmt", length_penalties=[0.6, 1.0, 2.0])
    fairseq.steps = [Step(), Step(output=NBEST)]
    run("train")
    run("evaluate")
    bleu = load_record(config.folder).length_penalty_search.choice.bleu
    assert bleu["0.6"] == bleu["1.0"] < bleu["2.0"]  # len^p would prefer the longer one from 0.69 on


@pytest.mark.parametrize(
    ("bleu", "best"),
    [
        ({"0.6": 31.0, "1.4": 31.0, "2.2": 31.0}, "0.6"),
        ({"1.8": 31.0, "1.4": 31.0, "0.6": 30.0}, "1.4"),
        ({"-1.0": 0.0, "3.0": 0.0}, "-1.0"),
    ],
)
def test_the_best_penalty_is_the_closest_to_1_of_those_with_equal_bleu(bleu, best):
    assert best_penalty(bleu) == best


def test_nbest_lists_have_the_best_hypothesis_for_every_penalty(tmp_path):
    (tmp_path / "generate-valid.txt").write_text(NBEST)
    for power, text in ((0, SHORT), (0.6, SHORT), (0.68, SHORT), (0.7, LONG), (2.2, LONG)):
        generated = read_generated(tmp_path / "generate-valid.txt", lambda length, power=power: length**power)
        assert generated.hypotheses == {0: text} and generated.references == {0: "a b c d"}
