"""--lenpen chosen on the validation set: which value is best, and the steps around it."""

import json
from dataclasses import replace

import pytest

from relumt.errors import UserError
from relumt.json_files import decode_json
from relumt.runs.evaluation_check import check_evaluation, is_scored
from relumt.runs.evaluation_steps import score_pending, start_evaluation
from relumt.runs.length_penalty_choice import LengthPenaltyChoice, best_penalty
from relumt.runs.length_penalty_search import SEARCH_FOLDER, finish_search, start_search
from relumt.runs.nbest_lists import read_nbest
from relumt.runs.record import RunRecord, find_record, load_record, save_record
from relumt.runs.run_config import resolve_run_config
from tests.runs.cases import scored_record, train, with_value, write_checkpoint, write_dataset, write_prepared

SHORT, LONG = "a b c", "a b c d"
NBEST = (
    "S-0\tx\nT-0\ta b c d\n"
    f"H-0\t-3.0\t{SHORT}\nD-0\t-3.0\t{SHORT}\nP-0\t-1.0 -1.0 -0.5 -0.5\n"
    f"H-0\t-3.5\t{LONG}\nD-0\t-3.5\t{LONG}\nP-0\t-1.0 -1.0 -0.5 -0.5 -0.5\n"
    "Generate valid with beam=2: BLEU4 = 0\n"
)
"""SHORT has the higher log-probability. A penalty of len^p prefers LONG if p > log(3.5 / 3) / log(5 / 4) = 0.69."""

TEST_OUTPUT = "T-0\ta b c d\nD-0\t-1\ta b c d\nGenerate test with beam=5: BLEU4 = 0\n"


@pytest.mark.parametrize(
    ("bleu", "best"),
    [
        ({"0.6": 30.0, "1.0": 31.0, "1.4": 30.5}, "1.0"),
        ({"0.6": 31.0, "1.4": 31.0, "2.2": 31.0}, "0.6"),
        ({"1.8": 31.0, "1.4": 31.0, "0.6": 30.0}, "1.4"),
        ({"1.4": 31.0, "0.6": 31.0, "1.0": 30.0}, "0.6"),
        ({"-1.0": 0.0, "3.0": 0.0}, "-1.0"),
        ({"2.0": 5.0}, "2.0"),
    ],
)
def test_the_best_penalty_is_the_closest_to_1_of_those_with_equal_bleu(bleu, best):
    assert best_penalty(bleu) == best


def write_nbest(folder, text=NBEST):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "generate-valid.txt").write_text(text)
    return folder / "generate-valid.txt"


@pytest.mark.parametrize(("power", "text"), [(0, SHORT), (0.6, SHORT), (0.68, SHORT), (0.7, LONG), (2.2, LONG)])
def test_nbest_lists_have_the_best_hypothesis_for_every_penalty(tmp_path, power, text):
    lists = read_nbest(write_nbest(tmp_path))
    generated = lists.best(lambda length: length**power)
    assert generated.hypotheses == {0: text} and generated.references == {0: "a b c d"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("Generate", "", "truncated"),
        ("P-0\t-1.0 -1.0 -0.5 -0.5\n", "", "expected a score"),
        ("P-0", "P-1", "expected a score"),
        ("D-0\t-3.0", "D-0\tnan", "expected a score"),
        ("D-0\t-3.0", "D-0\tx", "expected a score"),
        ("D-0\t-3.0\t", "D-0 -3.0 ", "expected D-INDEX"),
    ],
)
def test_damaged_nbest_lists_are_refused(tmp_path, old, new, message):
    with pytest.raises(UserError, match=message):
        read_nbest(write_nbest(tmp_path, NBEST.replace(old, new, 1)))


CHOICE = LengthPenaltyChoice("valid", "v", "tok:none", {"1.0": 30.0, "1.4": 31.0}, "1.4")


def chosen(record, choice=CHOICE):
    flags = {"--beam": "5", "--lenpen": choice.chosen}
    record = with_value(record, "evaluations.test.setup.length_penalty", choice)
    return with_value(record, "evaluations.test.setup.flags", flags)


def test_records_without_a_choice_stay_readable(tmp_path):
    """Files of earlier versions have neither the search nor the field of the setup."""
    save_record(tmp_path, scored_record())
    content = json.loads((tmp_path / "run.json").read_text())
    del content["length_penalty_search"], content["evaluations"]["test"]["setup"]["length_penalty"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    assert load_record(tmp_path) == scored_record()


@pytest.mark.parametrize(
    "change", [{"chosen": "1.0"}, {"bleu": {}}, {"bleu": {"x": 1.0}, "chosen": "x"}, {"bleu": {"inf": 1.0}}]
)
def test_a_recorded_choice_is_checked(tmp_path, change):
    save_record(tmp_path, chosen(scored_record()))
    assert load_record(tmp_path).test_evaluation.setup.length_penalty == CHOICE
    content = json.loads((tmp_path / "run.json").read_text())
    content["evaluations"]["test"]["setup"]["length_penalty"] |= change
    with pytest.raises(UserError, match="not in the expected format"):
        decode_json(json.dumps(content), RunRecord, "run.json", "restore it")


@pytest.fixture
def trained(config, configs, step):
    """A trained run on a dataset with values of --lenpen to compare."""
    write_dataset(configs, "small", length_penalties=[0.6, 1.0, 1.4])
    train(config, step)
    return config


def search(config, step):
    command = step(start_search).result
    write_nbest(config.folder / SEARCH_FOLDER)
    step(finish_search)
    return command


def translate(config, step):
    command = step(start_evaluation).result
    (config.folder / "generate-test.txt").write_text(TEST_OUTPUT)
    (config.folder / "generate-test.log").write_text("")
    step(score_pending)
    return command


def find_value(flag, command):
    arguments = command.arguments
    return arguments[arguments.index(flag) + 1] if flag in arguments else None


def test_the_test_set_is_translated_once_with_the_value_that_is_best_on_the_validation_set(trained, step):
    command = search(trained, step)
    assert command.log == trained.folder / SEARCH_FOLDER / "generate-valid.log"
    found = {flag: find_value(flag, command) for flag in ("--gen-subset", "--lenpen", "--nbest", "--beam")}
    assert found == {"--gen-subset": "valid", "--lenpen": "0", "--nbest": "5", "--beam": "5"}
    assert find_value("--results-path", command) == str(trained.folder / SEARCH_FOLDER)
    choice = load_record(trained.folder).length_penalty_search.choice
    assert choice.bleu["0.6"] < choice.bleu["1.0"] == choice.bleu["1.4"] and choice.chosen == "1.0"
    command = translate(trained, step)
    found = [find_value(flag, command) for flag in ("--lenpen", "--gen-subset", "--nbest")]
    assert found == ["1.0", None, None]
    assert load_record(trained.folder).test_evaluation.setup.length_penalty == choice
    before = (trained.folder / "run.json").read_bytes()
    assert step(start_search).result is None
    assert "test evaluated already" in step(start_evaluation).err
    assert (trained.folder / "run.json").read_bytes() == before


def test_a_value_of_the_user_is_not_chosen(trained, step, configs):
    assert step(start_search, "--lenpen", "2").result is None
    assert find_value("--lenpen", step(start_evaluation, "--lenpen", "2").result) == "2"


def test_an_interrupted_search_starts_over(trained, step, refused):
    step(start_search)
    assert "--lenpen has not been chosen on valid" in refused(start_evaluation)
    write_nbest(trained.folder / SEARCH_FOLDER, NBEST[:40])
    assert "truncated" in refused(finish_search)
    assert step(start_search).result
    assert not (trained.folder / SEARCH_FOLDER / "generate-valid.txt").exists()
    search(trained, step)
    assert step(start_evaluation).result
    assert "there is no unscored translation of valid" in refused(finish_search)


def test_other_settings_start_another_search(trained, step, configs):
    search(trained, step)
    assert step(start_search).result is None
    assert step(start_search, "--bf16").result
    search(trained, step)
    assert find_value("--nbest", step(start_search, "--beam", "2").result) == "2"
    search(trained, step)
    write_dataset(configs, "small", length_penalties=[0.6, 1.0])
    assert step(start_search).result
    search(trained, step)
    write_checkpoint(trained, updates=7)
    assert step(start_search).result


def test_only_a_choice_from_the_same_values_counts_as_evaluated(trained, step, configs):
    search(trained, step)
    translate(trained, step)

    def scored(flags=(), **settings):
        write_dataset(configs, "small", **settings)
        config = resolve_run_config("small", "stock", 1, configs, trained.folder.parents[2], trained.data_bin.folder)
        return is_scored(config, find_record(trained.folder), list(flags))

    assert scored(length_penalties=[1.4, 1.0, 0.6])
    assert not scored(length_penalties=[1.0, 0.6]) and not scored()
    assert not scored(["--lenpen", "1.0"], length_penalties=[1.4, 1.0, 0.6])
    assert not scored(["--beam", "1"], length_penalties=[1.4, 1.0, 0.6])


def test_scores_with_a_chosen_value_outlive_their_checkpoints(trained, step):
    search(trained, step)
    translate(trained, step)
    (trained.checkpoints / "checkpoint_best.pt").unlink()
    assert step(start_search).result is None
    assert "evaluated already, and its checkpoints were deleted" in step(start_evaluation).err


def test_a_changed_environment_is_accepted_once(trained, step, refused, monkeypatch):
    changed = replace(load_record(trained.folder).provenance.environment.revision, code="f" * 40)
    monkeypatch.setattr("relumt.runs.environment.revision", lambda: changed)
    assert "(now " in refused(start_search)
    assert step(start_search, settings=["--accept-mixed"]).result
    write_nbest(trained.folder / SEARCH_FOLDER)
    step(finish_search)
    assert step(start_evaluation, settings=["--accept-mixed"]).result
    assert len(load_record(trained.folder).environment_changes) == 1


def test_the_code_may_change_while_the_validation_set_is_translated(trained, step, refused, monkeypatch):
    search(trained, step)
    revision = load_record(trained.folder).provenance.environment.revision
    monkeypatch.setattr("relumt.runs.environment.revision", lambda: replace(revision, code="f" * 40))
    assert "(now " in refused(start_evaluation)
    assert step(start_evaluation, settings=["--accept-mixed"]).result
    assert len(load_record(trained.folder).environment_changes) == 1
    assert step(start_search, settings=["--accept-mixed"]).result  # a search of its own the next time


def test_a_choice_without_effect_or_validation_set_is_refused(trained, refused):
    assert "length_penalties has no effect with --unnormalized" in refused(check_evaluation, "--unnormalized")
    (trained.data_bin.folder / "valid.de-en.en.idx").unlink()
    assert "the data-bin has no subset 'valid'" in refused(check_evaluation)


def test_averages_outlive_the_checkpoints_that_were_averaged(trained, configs, step):
    write_dataset(configs, "small", average_checkpoints=2, length_penalties=[1.0])
    numbered = [write_checkpoint(trained, f"checkpoint{epoch}.pt", updates=3 * epoch) for epoch in (1, 2)]
    averaged = str(trained.checkpoints / "checkpoint_average_2.pt")
    assert find_value("--path", search(trained, step)) == averaged
    assert find_value("--path", translate(trained, step)) == averaged
    for path in numbered:
        path.unlink()
    assert step(start_search).result is None
    assert "test evaluated already" in step(start_evaluation).err


def test_candidates_are_compared_with_the_formula_of_the_dataset(config, configs, step):
    write_dataset(configs, "small", generate="--beam 5 --length-penalty gnmt", length_penalties=[0.6, 1.0, 2.0])
    train(config, step)
    search(config, step)
    bleu = load_record(config.folder).length_penalty_search.choice.bleu
    assert bleu["0.6"] == bleu["1.0"] < bleu["2.0"]  # len^p would prefer the longer one from 0.69 on


def test_a_search_is_repeated_if_the_data_bin_was_prepared_again_with_lowercase(config, configs, step):
    write_dataset(configs, "small", length_penalties=[0.6, 1.0])
    write_prepared(config.data_bin.folder, valid="a b c d\n")
    train(config, step)
    search(config, step)
    assert step(start_search).result is None
    write_prepared(config.data_bin.folder, lowercased=True)
    assert step(start_search).result
