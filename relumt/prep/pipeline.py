"""The steps of corpus preparation in their order."""

import shutil
from functools import partial
from pathlib import Path

from relumt.atomic_output import StagingArea, atomic_folder
from relumt.data.document_lengths import documents_path, lengths_after_cleaning, read_document_lengths, write_lengths
from relumt.errors import UserError
from relumt.prep.alignments import alignments_path, check_alignments, keep_alignments
from relumt.prep.binarization import add_word, binarise, describe_dictionary
from relumt.prep.bitext import check_line_counts, check_no_empty_line, check_no_reserved_word, clean_pairs
from relumt.prep.bpe import BPE_METHODS
from relumt.prep.markup import take_out
from relumt.prep.options import HELD_OUT, SPLITS, Options
from relumt.prep.progress import Steps
from relumt.prep.record import describe_inputs, differences, write_record
from relumt.prep.test_subsets import read_subsets, subsets_path
from relumt.prep.tokenization import lowercase, tokenize
from relumt.text_files import Rewrite, find_text_file, normalize_file, num_processes, read_clean_lines, rewrite_file

FAIRSEQ_MULTIPLE = 8
"""fairseq-train leaves out a batch of validation that is smaller (--required-batch-size-multiple)."""

Texts = dict[tuple[str, ...], Path]  # (split, language) -> the file
Counts = dict[str, int]  # split -> lines of either side


def prepare(prefixes: dict[str, str], out: Path, options: Options, overwrite: bool, steps: Steps) -> None:
    """Turn the bitexts `prefixes` (split -> prefix) into the data-bin `out`, unless it is there already.

    Raises `UserError` for bad input, or where `out` holds something else and `overwrite` is not given.
    """
    originals = {(s, lang): find_text_file(prefixes[s], lang) for s in SPLITS for lang in options.languages}
    documents = {s: path for s in SPLITS if (path := documents_path(prefixes[s])).is_file()}
    plain = plain_texts(prefixes, options)
    parts = {s: path for s in HELD_OUT if (path := subsets_path(prefixes[s])).is_file()}
    named = {".".join(key): path for key, path in (originals | plain).items()}
    side_files = {f"{s}.docs": path for s, path in documents.items()}
    side_files |= {f"{s}.subsets.json": path for s, path in parts.items()}
    alignments = {s: path for s in HELD_OUT if (path := alignments_path(prefixes[s], options.languages))}
    side_files |= {f"{s}.align": path for s, path in alignments.items()}
    if alignments and options.tokenize:
        raise UserError(
            f"{next(iter(alignments.values()))}: numbers words that --tokenize would split anew; tokenise the texts "
            "first and give --tokenized-input"
        )
    inputs = describe_inputs(named | side_files)
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        changes = differences(out, options, inputs)
        if not changes and not overwrite:
            steps.say(f"{out} is up to date")
            return
        if not overwrite:
            raise UserError(f"{out}: exists, but {', '.join(changes)}; give --overwrite or another --out")
    for path in alignments.values():
        check_alignments(path)
    with atomic_folder(out) as stage:
        counts = build(originals, documents, options, stage, steps)
        keep_side_files(plain, parts, counts["binarised"], stage.result / "text")
        for split, path in alignments.items():
            kept = stage.result / "text" / f"{split}.align"
            keep_alignments(path, options.languages, kept, counts["binarised"][split])
        names = [f"dict.{lang}.txt" for lang in options.languages]
        dictionaries = {name: describe_dictionary(stage.result / name) for name in names}
        plain_references = bool(plain) or not options.tokenized_input
        write_record(stage.result, options, inputs, counts, dictionaries, plain_references)
    types = ", ".join(f"{name} {described['types']} types" for name, described in dictionaries.items())
    steps.say(f"wrote {out} ({types})")
    if counts["binarised"]["valid"] < FAIRSEQ_MULTIPLE:
        steps.say(f"valid has fewer than {FAIRSEQ_MULTIPLE} pairs: fairseq-train finds no batch in it; give it more")


def plain_texts(prefixes: dict[str, str], options: Options) -> Texts:
    """Of texts that come tokenised, P.raw.LANG, what they were before, if it is there for both held-out sets."""
    if not options.tokenized_input:
        return {}
    found = {(s, "raw", lang): Path(f"{prefixes[s]}.raw.{lang}") for s in HELD_OUT for lang in options.languages}
    return found if all(path.is_file() for path in found.values()) else {}


def keep_side_files(plain: Texts, parts: dict[str, Path], lines: Counts, folder: Path) -> None:
    """Copy what scoring needs besides the texts; raises UserError for what does not fit them."""
    for (split, _, lang), path in plain.items():
        kept = folder / f"{split}.raw.{lang}"
        if (count := normalize_file(path, kept, lambda _: None)) != lines[split]:
            raise UserError(f"{path} has {count} lines, but the tokenised text {lines[split]}; correct or remove it")
    for split, path in parts.items():
        read_subsets(path, lines[split])
        shutil.copyfile(path, subsets_path(str(folder / split)))


def build(
    originals: Texts, documents: dict[str, Path], options: Options, stage: StagingArea, steps: Steps
) -> dict[str, object]:
    """Run every step that `options` asks for; return what each counted, for the record."""
    texts, lines = read(originals, stage.scratch / "read", steps)
    for key in texts:
        if key[0] in HELD_OUT:
            check_no_empty_line(texts[key], originals[key])
    if options.documents:
        texts, lines, lengths = without_markup(texts, originals, options.documents, stage.scratch / "unmarked")
    else:
        lengths = {split: read_document_lengths(path, lines[split]) for split, path in documents.items()}
    if not options.tokenized_input:
        keep_held_out(texts, stage.result / "text", ".raw")

    if options.tokenize:
        by_language = {lang: partial(tokenize, language=lang) for lang in options.languages}
        texts = rewrite(texts, lines, by_language, stage.scratch / "tokenised", steps)
    if options.lowercase:
        by_language = dict.fromkeys(options.languages, lowercase)
        texts = rewrite(texts, lines, by_language, stage.scratch / "lowercased", steps)
    for key in texts:
        if key[0] in HELD_OUT:
            check_no_reserved_word(texts[key], originals[key])
    keep_held_out(texts, stage.result / "text", "")

    texts, kept, dropped = clean(texts, options, stage.scratch / "cleaned", steps)
    counts = {"read": lines, "dropped": dropped}
    lines = lines | {"train": sum(kept)}
    if "train" in lengths:
        lengths["train"] = lengths_after_cleaning(lengths["train"], kept)
    for split in lengths:
        write_lengths(stage.result / f"{split}.docs", lengths[split])

    if options.bpe != "none":
        kind = BPE_METHODS[options.bpe]
        train = [texts["train", lang] for lang in options.languages]
        with steps.step(f"learn {options.bpe} of {options.vocab_size}", options.vocab_size) as advance:
            counts["bpe"] = kind.learn(train, options.vocab_size, stage.result, advance)
        by_language = dict.fromkeys(options.languages, kind.load(stage.result))
        texts = rewrite(texts, lines, by_language, stage.scratch / "segmented", steps)

    with steps.step("binarise with fairseq-preprocess"):
        prefixes = {split: texts[split, options.source].with_name(split) for split in SPLITS}
        log = stage.scratch / "fairseq-preprocess.log"
        joined, workers = not options.separate_dictionaries, num_processes(lines["train"])
        binarise(prefixes, options.languages, stage.result, log, joined, workers)
    if options.separator:
        for lang in options.languages:
            add_word(options.separator, stage.result / f"dict.{lang}.txt")
    return counts | {"binarised": lines}


def read(originals: Texts, folder: Path, steps: Steps) -> tuple[Texts, Counts]:
    """Write the normalised texts to `folder`; raises `UserError` for any input that is not a bitext."""
    folder.mkdir()
    texts = {key: folder / ".".join(key) for key in originals}
    counts = {}
    for split in SPLITS:
        keys = [key for key in originals if key[0] == split]
        with steps.step(f"read {split}") as advance:
            lines = [normalize_file(originals[key], texts[key], advance) for key in keys]
        source, target = (originals[key] for key in keys)
        check_line_counts((source, target), lines, lambda side, keys=keys: read_clean_lines(texts[keys[side]]))
        counts[split] = lines[0]
    return texts, counts


def without_markup(
    texts: Texts, originals: Texts, kind: str, folder: Path
) -> tuple[Texts, Counts, dict[str, list[int]]]:
    """Write the texts without the markup of documents to `folder`; returns them, their lines and the documents."""
    folder.mkdir()
    unmarked = {key: folder / ".".join(key) for key in texts}
    lines, lengths = {}, {}
    for split in SPLITS:
        keys = [key for key in texts if key[0] == split]
        sides = [tuple(of[key] for key in keys) for of in (texts, unmarked, originals)]
        lines[split], lengths[split] = take_out(kind, *sides)
    return unmarked, lines, lengths


def rewrite(texts: Texts, lines: Counts, by_language: dict[str, Rewrite], folder: Path, steps: Steps) -> Texts:
    """Write every text, rewritten by its language's function, to `folder`; return the new files."""
    folder.mkdir()
    rewritten = {key: folder / ".".join(key) for key in texts}
    with steps.step(f"{folder.name} text", 2 * sum(lines.values())) as advance:
        for (split, lang), path in rewritten.items():
            rewrite_file(texts[split, lang], path, by_language[lang], num_processes(lines[split]), advance)
    return rewritten


def clean(texts: Texts, options: Options, folder: Path, steps: Steps) -> tuple[Texts, list[bool], Counts]:
    """Write train without its useless pairs to `folder`.

    Returns the new files, for each pair whether it was kept, and how many were dropped for each objection.
    """
    folder.mkdir()
    source, target = (("train", lang) for lang in options.languages)
    cleaned = {key: folder / ".".join(key) for key in (source, target)}
    kept, dropped = clean_pairs(
        (texts[source], texts[target]),
        (cleaned[source], cleaned[target]),
        options.max_length,
        options.max_ratio,
    )
    reasons = "".join(f", {count} {objection}" for objection, count in dropped.items())
    steps.say(f"dropped {dropped.total()} of {len(kept)} pairs of train{reasons}")
    return texts | cleaned, kept, dict(dropped)


def keep_held_out(texts: Texts, folder: Path, suffix: str) -> None:
    """Copy valid and test, which the output is scored against, to `folder` as {split}{suffix}.{language}."""
    folder.mkdir(exist_ok=True)
    for (split, lang), path in texts.items():
        if split in HELD_OUT:
            shutil.copyfile(path, folder / f"{split}{suffix}.{lang}")
