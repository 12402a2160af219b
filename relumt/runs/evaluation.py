"""Evaluating a trained run: what is translated with what, and what comes of it."""

from pathlib import Path
from typing import Any

from relumt.checkpoint_averaging import last_checkpoints, write_average
from relumt.data.document_lengths import read_document_lengths, write_lengths
from relumt.errors import UserError
from relumt.files import file_sha256
from relumt.runs.document_translations import (
    align_documents,
    came_apart_otherwise,
    one_by_one,
    sentences_of_chunks,
)
from relumt.runs.environment import Device, versions
from relumt.runs.flags import Flags, readable
from relumt.runs.provenance import differences, environment_fingerprint, refuse_other_vocabulary
from relumt.runs.record import Record, accept_or_refuse
from relumt.runs.run_config import CHECKPOINTS, Plan, has_checkpoints
from relumt.runs.translations import Generated, Translations, align, read_generated, read_speed
from relumt.text_files import write_lines

Evaluation = dict[str, Any]


def describe_evaluation(plan: Plan, flags: Flags, device: Device) -> Evaluation:
    """All that decides the translation of a subset with the run's best checkpoint, or the average of its last ones.

    Raises:
        UserError: the data-bin has no such subset, or the run no checkpoint.
    """
    subset = subset_of(flags)
    plan.data_bin.require(subset)
    average = plan.config.average_checkpoints
    checkpoint = averaged_checkpoint(plan, average) if average else best_checkpoint(plan.folder)
    return {
        "subset": subset,
        "flags": readable(flags),
        "data": plan.data_bin.checksum(subset, ("idx", "bin")),
        "checkpoint": checkpoint.name,
        "checkpoint_sha256": file_sha256(checkpoint),
        "environment": environment_fingerprint(plan.data_bin, device),
        "versions": versions(),
    }


def subset_of(flags: Flags) -> str:
    """Which set is translated; raises UserError where --gen-subset does not name one."""
    names = flags.get("--gen-subset", ["test"])
    if len(names) != 1:
        raise UserError("--gen-subset needs one value: test, valid or train")
    return names[0]


def outlives_its_checkpoint(plan: Plan, record: Record, flags: Flags) -> bool:
    """Whether the run has scores of this translation and no checkpoint any more, which is all that is compared then."""
    scored = record.get("evaluation", {}).get(subset_of(flags), {})
    return scored.get("flags") == readable(flags) and not has_checkpoints(plan.folder)


def best_checkpoint(run: Path) -> Path:
    """The checkpoint of the best validation in a run's folder, or the last one of a training without any."""
    for name in ("checkpoint_best.pt", "checkpoint_last.pt"):
        if (run / CHECKPOINTS / name).is_file():
            return run / CHECKPOINTS / name
    raise UserError(f"{run / CHECKPOINTS}: no checkpoint; delete {run} and train again")


def averaged_checkpoint(plan: Plan, count: int) -> Path:
    """The average of the last checkpoints, made anew where one is newer; raises UserError if there are fewer."""
    last = last_checkpoints(plan.checkpoints, count)
    averaged = plan.checkpoints / f"checkpoint_average_{count}.pt"
    if not averaged.is_file() or averaged.stat().st_mtime < max(path.stat().st_mtime for path in last):
        write_average(last, averaged)
    return averaged


def is_evaluated(record: Record, evaluation: Evaluation) -> bool:
    """Whether the record has scores of this very evaluation."""
    return evaluation.items() <= record.get("evaluation", {}).get(evaluation["subset"], {}).items()


def begin(plan: Plan, record: Record, evaluation: Evaluation, accept_mixed: bool) -> Record:
    """The record with `evaluation` begun, after everything that could be wrong with it was looked at.

    Raises:
        UserError: another vocabulary or environment than the training's, or a checkpoint that carries code.
    """
    from relumt.checkpoints import load_checkpoint_safely

    refuse_other_vocabulary(record["fingerprint"], plan.data_bin)
    changed = differences(record["fingerprint"], evaluation["environment"])
    if changed:
        accept_or_refuse(plan, record, changed, accept_mixed)
    load_checkpoint_safely(plan.checkpoints / evaluation["checkpoint"])
    return record | {"evaluating": evaluation}


def generate_log(plan: Plan, evaluation: Evaluation) -> Path:
    """Where fairseq-generate's messages go."""
    return plan.folder / f"generate-{evaluation['subset']}.log"


def generate_output(folder: Path, evaluation: Evaluation) -> Path:
    """Where fairseq-generate, given the folder as --results-path, writes the translations."""
    return folder / f"generate-{evaluation['subset']}.txt"


def of_sentences(plan: Plan) -> Path:
    """Folder of the translations of single sentences by a model of documents."""
    return plan.folder / "sentences"


def lost_separators(plan: Plan, record: Record) -> int:
    """How many translated chunks came back with another number of separators than was translated.

    Raises:
        UserError: nothing was translated, or not in documents with a separator.
    """
    evaluation = begun(plan, record)
    if not evaluation["flags"].get("--document-separator"):
        raise UserError(f"{plan.folder}: ONE_BY_ONE is of documents trained with --document-separator; leave it out")
    chunks, _ = chunks_and_documents(plan, evaluation)
    generated = read_generated(generate_output(plan.folder, evaluation))
    return len(came_apart_otherwise(generated, chunks, evaluation["flags"]["--document-separator"]))


def begun(plan: Plan, record: Record) -> Evaluation:
    """The evaluation that waits for its scores; raises UserError if there is none."""
    if "evaluating" not in record:
        raise UserError(f"{plan.folder}: nothing is translated that is not scored; run scripts/evaluate.sh")
    return record["evaluating"]


def without_scores(record: Record, subset: str) -> Record:
    """The record of a run whose translations of `subset` are about to be written over."""
    others = {name: of for name, of in record.get("evaluation", {}).items() if name != subset}
    return record | {"evaluation": others}


def finish(plan: Plan, record: Record) -> Record:
    """Write the translations and their references, and return the record with the scores of what was begun.

    Raises:
        UserError: nothing was begun, or fairseq-generate did not translate every sentence.
    """
    from relumt.runs.score import score_translations

    evaluation = begun(plan, record)
    subset, data_bin = evaluation["subset"], plan.data_bin
    output = generate_output(plan.folder, evaluation)
    generated = read_generated(output)
    if int(evaluation["flags"].get("--document-length", 0)):
        more, translations = finish_documents(plan, evaluation, generated)
    else:
        translations = align(generated, data_bin, subset)
        more = {"sentences": len(translations.hypotheses), "parts": score_parts(plan, subset, translations)}
        more["scored"] = write_scored(plan, subset, translations)
        more["scores"] = score_translations(translations, data_bin.lowercased)
    results = {
        **more,
        "tokens_per_second": read_speed(generate_log(plan, evaluation), output),
        "references_sha256": translations.references_sha256(),
    }
    scored = record | {"evaluation": record.get("evaluation", {}) | {subset: evaluation | results}}
    del scored["evaluating"]
    return scored


def score_parts(plan: Plan, subset: str, translations: Translations) -> dict[str, dict[str, Any]]:
    """The scores of the smaller sets within the subset, by name."""
    from relumt.runs.score import score_translations

    parts = {}
    for name, left_out in plan.data_bin.parts(subset, len(translations.hypotheses)).items():
        part = translations.without(set(left_out))
        scores = score_translations(part, plan.data_bin.lowercased)
        parts[name] = {"sentences": len(part.hypotheses), "scores": scores}
    return parts


def chunks_and_documents(plan: Plan, evaluation: Evaluation) -> tuple[list[int], list[int]]:
    """Sentences in each chunk that was translated and in each document; raises UserError if these do not add up."""
    from relumt.data.chunks import sentences_per_chunk

    subset, flags = evaluation["subset"], evaluation["flags"]
    sides = (f"{plan.data_bin.prefix(subset)}.{language}" for language in plan.data_bin.languages)
    chunks = sentences_per_chunk(*sides, int(flags["--document-length"]), bool(flags.get("--document-separator")))
    return chunks, read_document_lengths(plan.data_bin.folder / f"{subset}.docs", sum(chunks))


def finish_documents(plan: Plan, evaluation: Evaluation, generated: Generated) -> tuple[dict[str, Any], Translations]:
    """Write the translated chunks and how many sentences each has; return what was counted, and whole documents.

    With separators the sentences are scored too.
    """
    from relumt.runs.score import score_documents, score_translations

    subset, data_bin = evaluation["subset"], plan.data_bin
    separator = evaluation["flags"].get("--document-separator", "")
    chunks, documents = chunks_and_documents(plan, evaluation)
    results: dict[str, Any] = {"sentences": sum(chunks), "chunks": len(chunks), "documents": len(documents)}
    if separator:
        others = came_apart_otherwise(generated, chunks, separator)
        results |= {"chunks_with_other_separators": len(others), "translated_one_by_one": False}
        sentences = generate_output(of_sentences(plan), evaluation)
        if others and sentences.is_file():
            generated = one_by_one(generated, read_generated(sentences), chunks, others, separator)
            results["translated_one_by_one"] = True
    translated = align_documents(generated, data_bin, subset, chunks, documents, separator)
    write_lines(plan.folder / f"{subset}.hyp.tok", translated.tokenised_chunks)
    write_lines(plan.folder / f"{subset}.hyp", translated.chunks)
    results["scored"] = write_scored(plan, f"{subset}.documents", translated.documents)
    results["scores"] = score_documents(translated.documents, data_bin.lowercased)
    write_lengths(plan.folder / f"{subset}.chunks", chunks)
    if separator:
        by_sentence = sentences_of_chunks(translated, generated, data_bin, subset, chunks, separator)
        results["sentence_scores"] = score_translations(by_sentence, data_bin.lowercased)
    return results, translated.documents


def write_scored(plan: Plan, stem: str, translations: Translations) -> dict[str, list[str]]:
    """Write what is scored, line by line, as STEM.hyp, STEM.ref, STEM.hyp.tok and STEM.ref.tok.

    Returns:
        Names of the files by score: the hypotheses' and the references'.
    """
    forms = {
        "bleu_tokenised": (".tok", translations.tokenised_hypotheses, translations.tokenised_references),
        "bleu_detokenised": ("", translations.hypotheses, translations.references),
    }
    names = {}
    for score, (end, hypotheses, references) in forms.items():
        names[score] = [f"{stem}.hyp{end}", f"{stem}.ref{end}"]
        for name, lines in zip(names[score], (hypotheses, references), strict=True):
            write_lines(plan.folder / name, lines)
    return names
