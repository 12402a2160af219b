"""The steps that choose --lenpen on the validation set, before anything else is translated.

One translation is enough for all values: its n-best lists have the hypotheses for each (`relumt.runs.nbest_lists`).
"""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.runs.environment import Device
from relumt.runs.evaluation_record import EvaluationSetup, LengthPenaltySearch
from relumt.runs.evaluation_results import bleu_of_output, generate_log, generate_output
from relumt.runs.evaluation_setup import (
    accept_environment,
    check_checkpoint,
    describe_evaluation,
    gives_equal_scores,
    has_case_of_data,
    subset_name,
)
from relumt.runs.flags import Flags, join_flag_values
from relumt.runs.length_penalty_choice import LengthPenaltyChoice, best_penalty
from relumt.runs.nbest_lists import read_nbest
from relumt.runs.record import RunRecord, save_record
from relumt.runs.run_checkpoints import has_checkpoints
from relumt.runs.run_config import FairseqCommand, RunConfig
from relumt.runs.training_results import report_divergence, started_record, trained_record
from relumt.runs.translations import GeneratedOutput

VALIDATION = "valid"
"""The subset that --lenpen is chosen on."""

SEARCH_FOLDER = "length_penalty"
"""Subfolder of a run's folder with the translation that --lenpen was chosen by."""

FAIRSEQ_BEAM = "5"
"""fairseq's default of --beam."""


def check_search(config: RunConfig, flags: Flags) -> None:
    """Raise UserError if --lenpen is to be chosen but has no effect, or if there is no validation set."""
    if config.dataset_config.penalties_to_compare(flags):
        if "--unnormalized" in flags:
            raise UserError(
                f"{config.dataset_config.path}: length_penalties has no effect with --unnormalized; drop one of them"
            )
        config.data_bin.require_subset(VALIDATION)


def start_search(
    config: RunConfig, device: Device, extra_flags: list[str], accept_changes: bool
) -> FairseqCommand | None:
    """Record the search, and return the command that translates the validation set; None if nothing is to be chosen.

    Raises:
        UserError: as `start_evaluation`.
    """
    if report_divergence(config, started_record(config)):
        return None
    record = trained_record(config)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    candidates = config.dataset_config.penalties_to_compare(flags)
    if not candidates or (is_translated_as_asked(config, record, flags) and not has_checkpoints(config.folder)):
        return None
    setup = describe_search(config, flags, device)
    found = find_search(config, record, setup, candidates)
    if found and gives_equal_scores(found.setup, setup):
        return None
    record = accept_environment(config, record, setup, accept_changes)
    check_checkpoint(config, record, setup)
    folder = config.folder / SEARCH_FOLDER
    shutil.rmtree(folder, ignore_errors=True)  # first: an earlier translation must not be scored as this one's
    folder.mkdir()
    save_record(config.folder, replace(record, length_penalty_search=LengthPenaltySearch(setup, list(candidates))))
    arguments = config.generate_command(search_flags(flags), config.checkpoints / setup.checkpoint, folder, device)
    return FairseqCommand(generate_log(folder, setup), arguments)


def search_flags(flags: Flags) -> Flags:
    """Return the flags that translate the validation set as `flags` do, with all hypotheses of beam search."""
    beam = flags.get("--beam", [FAIRSEQ_BEAM])
    return flags | {"--gen-subset": [VALIDATION], "--lenpen": ["0"], "--nbest": beam}


def describe_search(config: RunConfig, flags: Flags, device: Device) -> EvaluationSetup:
    """Describe the translation of the validation set; raises UserError as `describe_evaluation` does."""
    return describe_evaluation(config, search_flags(flags), device, one_by_one=False)


def find_search(
    config: RunConfig, record: RunRecord, setup: EvaluationSetup, candidates: tuple[float, ...]
) -> LengthPenaltySearch | None:
    """Return the recorded search between these candidates by a translation with this setup, in any environment.

    Returns:
        None if there is none, or if it is not scored.
    """
    search = record.length_penalty_search
    if search is None or search.choice is None or sorted(search.candidates) != sorted(candidates):
        return None
    is_current = search.setup.matches(setup) and has_case_of_data(search.choice.signature, config.data_bin)
    return search if is_current else None


def require_search(config: RunConfig, record: RunRecord, flags: Flags, device: Device) -> LengthPenaltySearch | None:
    """Return the recorded search that chose --lenpen; None if the dataset or the user leaves no choice.

    Editing relumt while the validation set is translated changes the environment, and does not matter here.

    Raises:
        UserError: the choice has to be made first.
    """
    candidates = config.dataset_config.penalties_to_compare(flags)
    if not candidates:
        return None
    search = find_search(config, record, describe_search(config, flags, device), candidates)
    if search is None:
        raise UserError(
            f"{config.folder}: --lenpen has not been chosen on {VALIDATION} for this translation; run "
            "scripts/evaluate.sh, or give --lenpen"
        )
    return search


def with_choice(flags: Flags, choice: LengthPenaltyChoice | None) -> Flags:
    """Return the flags with the chosen --lenpen, if it was chosen."""
    return flags | {"--lenpen": [choice.chosen]} if choice else flags


def is_translated_as_asked(config: RunConfig, record: RunRecord, flags: Flags) -> bool:
    """Return whether the subset was scored with these flags, and with a choice of --lenpen if they leave one."""
    scored = record.evaluations.get(subset_name(flags))
    if scored is None:
        return False
    candidates = config.dataset_config.penalties_to_compare(flags)
    choice = scored.setup.length_penalty
    compared = sorted(map(float, choice.bleu)) if choice else []
    return compared == sorted(candidates) and scored.setup.flags == join_flag_values(with_choice(flags, choice))


def finish_search(config: RunConfig) -> None:
    """Score the validation set for each candidate, record the best one and print it.

    Raises:
        UserError: no search is pending, or fairseq-generate did not translate every sentence.
    """
    record = trained_record(config)
    search = record.length_penalty_search
    if search is None or search.choice:
        raise UserError(f"{config.folder}: there is no unscored translation of {VALIDATION}; run scripts/evaluate.sh")
    choice = compare(config, search)
    save_record(config.folder, replace(record, length_penalty_search=replace(search, choice=choice)))
    curve = ", ".join(f"{value}: {bleu:.2f}" for value, bleu in choice.bleu.items())
    print_status(f"{config.folder}: --lenpen {choice.chosen}, by BLEU on {VALIDATION} ({curve})")


def translations_by_penalty(folder: Path, setup: EvaluationSetup) -> Callable[[float], GeneratedOutput]:
    """Return a function from a value of --lenpen to the best translations under it.

    Args:
        folder: folder of the run.
        setup: the setup of its length-penalty search.

    Raises:
        UserError: the output of fairseq-generate is missing, truncated or damaged.
    """
    from relumt.search.length_penalty import FAIRSEQ_PENALTY, LENGTH_PENALTIES

    lists = read_nbest(generate_output(folder / SEARCH_FOLDER, setup))
    divisor = LENGTH_PENALTIES[setup.flags.get("--length-penalty", FAIRSEQ_PENALTY)]
    return lambda power: lists.best(lambda length: divisor(length, power))


def compare(config: RunConfig, search: LengthPenaltySearch) -> LengthPenaltyChoice:
    """Score the validation set for each candidate; raises UserError if fairseq-generate's output is not complete."""
    setup = search.setup
    best = translations_by_penalty(config.folder, setup)
    scores = {str(power): bleu_of_output(config, setup, best(power)) for power in search.candidates}
    bleu = {value: score.score for value, score in scores.items()}
    signature = next(iter(scores.values())).signature
    return LengthPenaltyChoice(setup.subset, setup.data, signature, bleu, best_penalty(bleu))
