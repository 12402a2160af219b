"""The steps of scripts/evaluate.sh: translate a subset with a trained run's checkpoint, then score the translations."""

import shutil
from dataclasses import replace
from pathlib import Path

from relumt.console import print_status
from relumt.errors import UserError
from relumt.files import changed_files
from relumt.runs.environment import Device
from relumt.runs.evaluation_check import require_separator
from relumt.runs.evaluation_record import EvaluationSetup
from relumt.runs.evaluation_results import (
    SINGLE_SENTENCES,
    count_separator_mismatches,
    generate_log,
    generate_output,
    score_output,
)
from relumt.runs.evaluation_setup import (
    accept_environment,
    check_checkpoint,
    describe_evaluation,
    gives_equal_scores,
    has_case_of_data,
)
from relumt.runs.flags import Flags
from relumt.runs.length_penalty_search import is_translated_as_asked, require_search, with_choice
from relumt.runs.provenance import environment_differences
from relumt.runs.record import RunRecord, find_record, save_record
from relumt.runs.run_checkpoints import has_checkpoints
from relumt.runs.run_config import FairseqCommand, RunConfig
from relumt.runs.training_results import report_divergence, trained_record


def start_evaluation(
    config: RunConfig, device: Device, extra_flags: list[str], one_by_one: bool, accept_changes: bool
) -> FairseqCommand | None:
    """Record what will be translated, and return the command; None if it is already scored or the run diverged.

    Raises:
        UserError: training is not finished, or the data-bin has a different vocabulary, or the environment is not that
            of training, or the checkpoint is missing, contains code or is not of this run.
    """
    found = find_record(config.folder)
    if found and report_divergence(config, found):
        return None
    record = trained_record(config)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    if is_translated_as_asked(config, record, flags) and not has_checkpoints(config.folder):
        print_status(f"{config.folder}: evaluated already, and its checkpoints were deleted")
        return None
    search = require_search(config, record, flags, device)
    choice = search.choice if search else None
    flags = with_choice(flags, choice)
    setup = replace(describe_evaluation(config, flags, device, one_by_one), length_penalty=choice)
    evaluation = record.evaluations.get(setup.subset)
    if (
        evaluation
        and gives_equal_scores(evaluation.setup, setup)
        and has_case_of_data(evaluation.scores["bleu_tokenized"].signature, config.data_bin)
        and not changed_files(config.folder, evaluation.files_sha256)
    ):
        print_status(f"{config.folder}: {setup.subset} evaluated already")
        return None
    was_accepted = search and not environment_differences(search.setup.environment, setup.environment)
    if not was_accepted:
        record = accept_environment(config, record, setup, accept_changes)
    check_checkpoint(config, record, setup)
    save_record(config.folder, replace(record, pending_evaluation=setup))
    # Translations of another setup must not be scored as this one's if fairseq-generate fails.
    generate_output(config.folder, setup).unlink(missing_ok=True)
    shutil.rmtree(config.folder / SINGLE_SENTENCES, ignore_errors=True)
    return _generate_command(config, setup, flags, config.folder, device)


def _generate_command(
    config: RunConfig, setup: EvaluationSetup, flags: Flags, folder: Path, device: Device
) -> FairseqCommand:
    arguments = config.generate_command(flags, config.checkpoints / setup.checkpoint, folder, device)
    return FairseqCommand(generate_log(config.folder, setup), arguments)


def start_one_by_one(config: RunConfig, device: Device, extra_flags: list[str]) -> FairseqCommand | None:
    """Return the command that translates sentences one by one; None if every translated chunk has its separators.

    Raises:
        UserError: no translation is pending, or it is not of documents with separators.
    """
    record = trained_record(config)
    setup = pending_evaluation(config, record)
    require_separator(config, setup.flags)
    mismatches = count_separator_mismatches(config, setup)
    if not mismatches:
        return None
    print_status(
        f"{config.folder}: {mismatches} translated chunks have a different number of separators than their source; "
        "translating sentences one by one"
    )
    flags = with_choice(config.generate_flags(extra_flags, record.provenance.flags), setup.length_penalty)
    flags |= {"--document-length": ["1"]}
    return _generate_command(config, setup, flags, config.folder / SINGLE_SENTENCES, device)


def pending_evaluation(config: RunConfig, record: RunRecord) -> EvaluationSetup:
    """Return the translation that is not scored yet; raises UserError if there is none."""
    if record.pending_evaluation is None:
        raise UserError(f"{config.folder}: there is no unscored translation; run scripts/evaluate.sh")
    return record.pending_evaluation


def score_pending(config: RunConfig) -> None:
    """Write the translations, record their scores and print them.

    Earlier scores of the subset are dropped before the files are written, which replaces the translations that they
    belong to.

    Raises:
        UserError: no translation is pending, or fairseq-generate did not translate every sentence.
    """
    record = trained_record(config)
    setup = pending_evaluation(config, record)
    scored = score_output(config, setup)
    others = {subset: earlier for subset, earlier in record.evaluations.items() if subset != setup.subset}
    save_record(config.folder, replace(record, evaluations=others))
    scored.write_files(config.folder)
    record = replace(record, pending_evaluation=None, evaluations=others | {setup.subset: scored.evaluation})
    save_record(config.folder, record)
    for subset, evaluation in record.evaluations.items():
        for score in evaluation.scores.values():
            print_status(f"{subset}: {score.detail}  {score.signature}")
