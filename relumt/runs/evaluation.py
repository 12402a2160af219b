"""Translates a subset with a trained run, scores it, and records the scores.

If the dataset leaves the length penalty open, it is chosen on the validation set first. A penalty only ranks finished
hypotheses, so the n-best lists of one translation serve for all its values.
"""

import shlex
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from relumt.errors import UserError, print_status
from relumt.files import atomic_file, changed_files, file_sha256, write_lines
from relumt.plugin.checkpoints.folder import BEST_CHECKPOINT
from relumt.plugin.search.length_penalty import FAIRSEQ_PENALTY, LENGTH_PENALTIES
from relumt.runs.environment import Precision, current_environment
from relumt.runs.evaluation_record import EvaluationSetup, LengthPenaltyChoice, LengthPenaltySearch, best_penalty
from relumt.runs.flags import Facts, Flags, differences, join_flag_values
from relumt.runs.launch import FairseqCommand, failure, locked, print_command, run_fairseq
from relumt.runs.record import RunRecord, save_record
from relumt.runs.run_config import RunConfig, averaged_checkpoint, best_checkpoint, has_checkpoints, num_averaged
from relumt.runs.scores import bleu_of_output, generate_log, generate_output, score_output
from relumt.runs.training import Request, accept_or_refuse, report_end, require_vocabulary, trained_record
from relumt.runs.translations import GeneratedOutput, read_generated

VALIDATION = "valid"
"""The subset that --lenpen is chosen on."""

SEARCH_FOLDER = "length_penalty"
"""Subfolder of a run's folder with the translation that --lenpen was chosen by."""

FAIRSEQ_BEAM = "5"
"""fairseq's default of --beam."""


def evaluate(config: RunConfig, request: Request, extra_flags: list[str]) -> None:
    """Translate a subset, and score it, unless the same was done before.

    Raises:
        UserError: training is not finished, or the data-bin or the flags do not fit; or the environment is not that of
            training.
        AttemptFailedError: fairseq-generate failed.
    """
    record = trained_record(config)
    if record.divergence:
        report_end(config, record)
        return
    original = "the run's training; set DATA_BIN to the original data-bin, or RUNS to another folder to train again"
    require_vocabulary(config.data_bin, record.provenance.dictionaries, original)
    flags = config.generate_flags(extra_flags, record.provenance.flags)
    check_flags(config, flags, record.provenance.flags)
    if not has_checkpoints(config.folder) and is_translated_as_asked(config, record, flags):
        print_status(f"{config.folder}: evaluated already, and its checkpoints were deleted")
        return
    if request.dry_run:
        print_commands(config, request, flags)
        return
    with locked(config.folder):
        record = trained_record(config)  # another process may have written scores meanwhile
        record, choice = choose_length_penalty(config, request, record, flags)
        flags = with_choice(flags, choice)
        setup = replace(describe_evaluation(config, request, flags), length_penalty=choice)
        found = record.evaluations.get(setup.subset)
        is_same = found is not None and not differences(found.setup.facts(), setup.facts())
        if found and is_same and not changed_files(config.folder, found.files_sha256):
            print_status(f"{config.folder}: {setup.subset} evaluated already")
            return
        record = accept_environment(config, request, record, setup)
        translate(config, request, setup, flags, config.folder)
        score(config, record, setup)


def check_flags(config: RunConfig, flags: Flags, trained: Mapping[str, str]) -> None:
    """Raise UserError if flags of translation have no effect, or the data-bin lacks a subset."""
    config.data_bin.require_subset(subset_name(flags))
    if translation_precision(flags) == "bf16" and trained.get("--arch", "").startswith("transformer"):
        raise UserError(f"{config.model}: --bf16 works with relumt's architectures, found --arch transformer; drop it")
    if config.dataset_config.penalties_to_compare(flags):
        config.data_bin.require_subset(VALIDATION)


def print_commands(config: RunConfig, request: Request, flags: Flags) -> None:
    """Print the commands that would translate; a length penalty that is not chosen yet is left out."""
    count = config.dataset_config.average_checkpoints
    checkpoint = f"checkpoint_average_{count}.pt" if count else BEST_CHECKPOINT
    if config.dataset_config.penalties_to_compare(flags):
        search = generate_command(config, request, search_flags(flags), checkpoint, config.folder / SEARCH_FOLDER)
        print_command("generate", search)
    print_command("generate", generate_command(config, request, flags, checkpoint, config.folder))


def generate_command(
    config: RunConfig, request: Request, flags: Flags, checkpoint: str, folder: Path
) -> FairseqCommand:
    """Return the command that translates with a checkpoint of the run, and writes to `folder`."""
    arguments = config.generate_command(flags, config.checkpoints / checkpoint, folder, request.device)
    return FairseqCommand(generate_log(folder, subset_name(flags)), arguments, request.is_verbose)


def describe_evaluation(config: RunConfig, request: Request, flags: Flags) -> EvaluationSetup:
    """Describe the translation of a subset with the run's best checkpoint, or the average of its last ones."""
    subset = subset_name(flags)
    count = config.dataset_config.average_checkpoints
    checkpoint = averaged_checkpoint(config.folder, count) if count else best_checkpoint(config.folder)
    return EvaluationSetup(
        subset=subset,
        flags=join_flag_values(flags),
        data=config.data_bin.evaluation_checksum(subset),
        checkpoint=checkpoint.name,
        checkpoint_sha256=file_sha256(checkpoint),
        environment=current_environment(request.device).in_precision(translation_precision(flags)),
    )


def translation_precision(flags: Flags) -> Precision:
    """Return the precision that fairseq-generate computes products in."""
    return "bf16" if "--bf16" in flags else "fp32"


def subset_name(flags: Flags) -> str:
    """Return the subset that is translated."""
    return " ".join(flags.get("--gen-subset", ["test"]))


def accept_environment(config: RunConfig, request: Request, record: RunRecord, setup: EvaluationSetup) -> RunRecord:
    """Return the record; if the environment is not that of training, note it, or raise UserError without FORCE=1."""
    trained_in = record.provenance.environment.in_precision(setup.environment.device.precision)
    changed = differences(trained_in.facts(), setup.environment.facts())
    return accept_or_refuse(config, record, changed, request.force)


def translate(config: RunConfig, request: Request, setup: EvaluationSetup, flags: Flags, folder: Path) -> None:
    """Run fairseq-generate, which writes to `folder`; its messages go to the log of that folder."""
    folder.mkdir(exist_ok=True)
    generate_output(folder, setup).unlink(missing_ok=True)  # another translation's must not be scored as this one's
    command = generate_command(config, request, flags, setup.checkpoint, folder)
    if status := run_fairseq("generate", command, append=False):
        raise failure("generate", command, status)


def score(config: RunConfig, record: RunRecord, setup: EvaluationSetup) -> None:
    """Write the translations, record their scores and print them.

    Earlier scores of the subset are dropped before the files are written, which replaces the translations that they
    belong to. Scores of other programs are kept if data and translations are the same as before.
    """
    evaluation, files = score_output(config, setup)
    earlier = record.evaluations.get(setup.subset)
    if earlier and (earlier.setup.data, earlier.files_sha256) == (setup.data, evaluation.files_sha256):
        evaluation = replace(evaluation, external=earlier.external)
    elif earlier and earlier.external:
        names = ", ".join(earlier.external)
        print_status(f"{config.folder}: {names} of the earlier translation of {setup.subset} dropped; score again")
    others = {subset: earlier for subset, earlier in record.evaluations.items() if subset != setup.subset}
    save_record(config.folder, replace(record, evaluations=others))
    for name, lines in files.items():
        with atomic_file(config.folder / name) as unfinished:  # hard links to earlier ones keep their content
            write_lines(unfinished, lines)
    record = replace(record, evaluations=others | {setup.subset: evaluation})
    save_record(config.folder, record)
    for subset, scored in record.evaluations.items():
        for found in scored.scores.values():
            print_status(f"{subset}: {found.detail}  {found.signature}")
    run, runs = (shlex.quote(str(folder)) for folder in (config.folder, config.folder.parents[2]))
    print_status(f"next: relumt translate {run} <FILE, or relumt table --runs {runs}")


def choose_length_penalty(
    config: RunConfig, request: Request, record: RunRecord, flags: Flags
) -> tuple[RunRecord, LengthPenaltyChoice | None]:
    """Choose --lenpen by BLEU on the validation set, unless that was done before; return it, and the record with it.

    The choice is None if the dataset or the user has made it.
    """
    candidates = config.dataset_config.penalties_to_compare(flags)
    if not candidates:
        return record, None
    setup = describe_evaluation(config, request, search_flags(flags))
    found = record.length_penalty_search
    if found and not differences(found.setup.facts(), setup.facts()) and found.choice.values == sorted(candidates):
        return record, found.choice
    record = accept_environment(config, request, record, setup)
    translate(config, request, setup, search_flags(flags), config.folder / SEARCH_FOLDER)
    best = translations_by_penalty(config.folder, setup)
    scores = {str(power): bleu_of_output(config, setup, best(power)) for power in candidates}
    bleu = {value: scored.score for value, scored in scores.items()}
    signature = next(iter(scores.values())).signature
    choice = LengthPenaltyChoice(setup.subset, setup.data, signature, bleu, best_penalty(bleu))
    record = replace(record, length_penalty_search=LengthPenaltySearch(setup, choice))
    save_record(config.folder, record)
    curve = ", ".join(f"{value}: {points:.2f}" for value, points in bleu.items())
    print_status(f"{config.folder}: --lenpen {choice.chosen}, by BLEU on {VALIDATION} ({curve})")
    return record, choice


def search_flags(flags: Flags) -> Flags:
    """Return the flags that translate the validation set as `flags` do, with all hypotheses of beam search."""
    beam = flags.get("--beam", [FAIRSEQ_BEAM])
    return flags | {"--gen-subset": [VALIDATION], "--lenpen": ["0"], "--nbest": beam}


def with_choice(flags: Flags, choice: LengthPenaltyChoice | None) -> Flags:
    """Return the flags with the chosen --lenpen, if it was chosen."""
    return flags | {"--lenpen": [choice.chosen]} if choice else flags


def translations_by_penalty(folder: Path, setup: EvaluationSetup) -> Callable[[float], GeneratedOutput]:
    """Return a function from a value of --lenpen to the best translations under it.

    Args:
        folder: folder of the run.
        setup: the setup of its length-penalty search.

    Raises:
        UserError: the output of fairseq-generate is missing, truncated or damaged.
    """
    path = generate_output(folder / SEARCH_FOLDER, setup)
    divisor = LENGTH_PENALTIES[setup.flags.get("--length-penalty", FAIRSEQ_PENALTY)]
    return lambda power: read_generated(path, lambda length: divisor(length, power))


def is_translated_as_asked(config: RunConfig, record: RunRecord, flags: Flags) -> bool:
    """Return whether the subset was scored with these flags, and with a choice of --lenpen if they leave one."""
    scored = record.evaluations.get(subset_name(flags))
    return scored is not None and not differences(scored.setup.facts(), asked_facts(config, scored.setup, flags))


def asked_facts(config: RunConfig, recorded: EvaluationSetup, flags: Flags) -> Facts:
    """Return what the flags say of a translation; of the values that they leave open the recorded choice is taken."""
    values = sorted(config.dataset_config.penalties_to_compare(flags))
    flags = with_choice(flags, recorded.length_penalty if values else None)
    return join_flag_values(flags) | {"values of --lenpen": values}


def is_scored_as_configured(config: RunConfig, record: RunRecord) -> bool:
    """Return whether the test set was scored with the dataset's settings of translation, and has not changed since.

    The number of averaged checkpoints is not compared if they were deleted: then nothing can be translated again.
    """
    setup = record.test_evaluation.setup
    is_same_average = config.dataset_config.average_checkpoints == num_averaged(setup.checkpoint)
    if has_checkpoints(config.folder) and not is_same_average:
        return False
    flags = config.generate_flags([], record.provenance.flags)
    asked = {**asked_facts(config, setup, flags), "data": config.data_bin.evaluation_checksum(setup.subset)}
    return not differences(setup.facts(), asked)
