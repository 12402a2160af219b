"""Evaluating a trained run: what is translated with what, and what comes of it."""

from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.files import sha256
from relumt.prep.documents import read_documents, write_lengths
from relumt.prep.lines import write_lines
from relumt.runs.document_translations import align_documents
from relumt.runs.environment import Device, versions
from relumt.runs.fingerprint import differences, environment_fingerprint, refuse_other_vocabulary
from relumt.runs.flags import Flags, readable
from relumt.runs.plan import Plan
from relumt.runs.record import Record, accept_or_refuse
from relumt.runs.translations import Generated, Translations, align, read_generated, read_speed

Evaluation = dict[str, Any]


def describe_evaluation(plan: Plan, flags: Flags, device: Device) -> Evaluation:
    """All that decides the translation of a subset with the run's best checkpoint.

    Raises:
        UserError: the data-bin has no such subset, or the run no checkpoint.
    """
    subset = flags.get("--gen-subset", ["test"])[0]
    plan.data_bin.require(subset)
    checkpoint = best_checkpoint(plan)
    return {
        "subset": subset,
        "flags": readable(flags),
        "checkpoint": checkpoint.name,
        "checkpoint_sha256": sha256(checkpoint),
        "environment": environment_fingerprint(plan.data_bin, device),
        "versions": versions(),
    }


def best_checkpoint(plan: Plan) -> Path:
    """The checkpoint of the best validation, or the last one of a training without any."""
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        if (plan.checkpoints / name).is_file():
            return plan.checkpoints / name
    raise UserError(f"{plan.checkpoints}: no checkpoint; delete {plan.folder} and train again")


def is_evaluated(record: Record, evaluation: Evaluation) -> bool:
    """Whether the record has scores of this very evaluation."""
    return evaluation.items() <= record.get("evaluation", {}).get(evaluation["subset"], {}).items()


def begin(plan: Plan, record: Record, evaluation: Evaluation, accept_mixed: bool) -> Record:
    """The record with `evaluation` begun, after everything that could be wrong with it was looked at.

    Raises:
        UserError: another vocabulary or environment than the training's, or a checkpoint that carries code.
    """
    from relumt.checkpoints import load_vetted

    refuse_other_vocabulary(record["fingerprint"], plan.data_bin)
    changed = differences(record["fingerprint"], evaluation["environment"])
    if changed:
        accept_or_refuse(plan, record, changed, accept_mixed)
    load_vetted(plan.checkpoints / evaluation["checkpoint"])
    return record | {"evaluating": evaluation}


def generate_log(plan: Plan, evaluation: Evaluation) -> Path:
    """Where fairseq-generate's messages go."""
    return plan.folder / f"generate-{evaluation['subset']}.log"


def generate_output(plan: Plan, evaluation: Evaluation) -> Path:
    """Where fairseq-generate, given the run's folder as --results-path, writes the translations."""
    return plan.folder / f"generate-{evaluation['subset']}.txt"


def finish(plan: Plan, record: Record) -> Record:
    """Write SUBSET.hyp.tok and SUBSET.hyp, and return the record with the scores of what was begun.

    Raises:
        UserError: nothing was begun, or fairseq-generate did not translate every sentence.
    """
    from relumt.runs.score import score_translations

    if "evaluating" not in record:
        raise UserError(f"{plan.folder}: nothing is translated that is not scored; run scripts/evaluate.sh")
    evaluation = record["evaluating"]
    subset = evaluation["subset"]
    generated = read_generated(generate_output(plan, evaluation))
    length = int(evaluation["flags"].get("--document-length", 0))
    if length:
        counts, translations = finish_documents(plan, evaluation, generated, length)
    else:
        translations = align(generated, plan.data_bin, subset)
        write_hypotheses(plan, subset, translations.tokenised_hypotheses, translations.hypotheses)
        counts = {"sentences": len(translations.hypotheses)}
    results = {
        **counts,
        "tokens_per_second": read_speed(generate_log(plan, evaluation), generate_output(plan, evaluation)),
        "references_sha256": translations.references_sha256(),
        "scores": score_translations(translations, plan.data_bin.lowercased),
    }
    scored = record | {"evaluation": record.get("evaluation", {}) | {subset: evaluation | results}}
    del scored["evaluating"]
    return scored


def finish_documents(
    plan: Plan, evaluation: Evaluation, generated: Generated, length: int
) -> tuple[dict[str, int], Translations]:
    """Write the translated chunks and how many sentences each has; return what was counted, and whole documents."""
    from relumt.data.chunks import chunk_lengths

    subset, data_bin = evaluation["subset"], plan.data_bin
    separator = evaluation["flags"].get("--document-separator", "")
    sides = (f"{data_bin.prefix(subset)}.{language}" for language in data_bin.languages)
    chunks = chunk_lengths(*sides, length, bool(separator))
    documents = read_documents(data_bin.folder / f"{subset}.docs", sum(chunks))
    translated = align_documents(generated, data_bin, subset, chunks, documents, separator)
    write_hypotheses(plan, subset, translated.tokenised_chunks, translated.chunks)
    write_lengths(plan.folder / f"{subset}.chunks", chunks)
    return {"sentences": sum(chunks), "chunks": len(chunks), "documents": len(documents)}, translated.documents


def write_hypotheses(plan: Plan, subset: str, tokenised: list[str], plain: list[str]) -> None:
    """Write SUBSET.hyp.tok and SUBSET.hyp."""
    write_lines(plan.folder / f"{subset}.hyp.tok", tokenised)
    write_lines(plan.folder / f"{subset}.hyp", plain)
