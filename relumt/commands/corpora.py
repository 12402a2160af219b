"""The commands that make corpora and data-bins."""

import argparse
from functools import partial
from pathlib import Path

from relumt.errors import UserError, print_status
from relumt.process import finite_number, positive_integer, whole_number

DEFAULT_VOCAB_SIZE = 8000


def add_synth_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt synth`."""
    add = parser.add_argument
    add("--seed", type=whole_number, default=1, help="random seed (default: 1)")
    add("--documents", type=positive_integer, required=True, help="number of training documents")
    for split, count in (("valid", 150), ("test", 300)):
        text = f"number of {split} documents (default: {count})"
        add(f"--{split}-documents", type=positive_integer, default=count, help=text)
    add("--out", type=Path, required=True, help="folder to create")


def synth(arguments: argparse.Namespace) -> None:
    """Write the generated German-English corpus: documents, gold word alignments and contrastive pronouns.

    The same seed gives the same files. Documents have 5 to 8 sentences. If the numbers of documents are divisible by
    three, the genders of the pronouns are exactly balanced.
    """
    from relumt.corpora.generated_corpus import write_corpus

    counts = {"train": arguments.documents, "valid": arguments.valid_documents, "test": arguments.test_documents}
    sentences = write_corpus(arguments.out, arguments.seed, counts)
    sizes = ", ".join(f"{split} {sentences[split]:,}" for split in sentences)
    print(f"{arguments.out}: sentence pairs: {sizes}")


def add_prepare_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt prepare`; `dest` names the field of `Options`."""
    from relumt.corpora.bitext import MARKUPS, SPLITS
    from relumt.corpora.options import BPE_CHOICES

    add = parser.add_argument
    add("--src", dest="source", required=True, metavar="LANG", help="source language, for example de")
    add("--tgt", dest="target", required=True, metavar="LANG", help="target language")
    for split in SPLITS:
        add(f"--{split}", required=True, metavar="P", help=f"prefix of the {split} texts")
    add("--out", required=True, type=Path, metavar="DIR", help="data-bin to create")
    bpe_help = f"{', '.join(BPE_CHOICES)} (default: %(default)s)"
    add("--bpe", default="subword-nmt", choices=BPE_CHOICES, metavar="METHOD", help=bpe_help)
    size_help = f"number of merges (subword-nmt) or pieces (sentencepiece) (default: {DEFAULT_VOCAB_SIZE})"
    add("--vocab-size", type=positive_integer, metavar="N", help=size_help)
    add("--tokenize", action="store_true", help="split words as Moses does (sacremoses)")
    add("--tokenized-input", action="store_true", help="the texts are Moses-tokenized already")
    lowercase_help = "lowercase all texts; also give it if they are lowercase already, so that scores ignore case"
    add("--lowercase", action="store_true", help=lowercase_help)
    length_help = "drop training pairs with more words on a side (default: %(default)s)"
    add("--max-length", type=positive_integer, default=250, metavar="N", help=length_help)
    ratio_help = (
        "drop training pairs with one side more than R times as long as the other, in words (default: %(default)s); "
        "give a large one for a language written without spaces"
    )
    add("--max-ratio", type=finite_number, default=9.0, metavar="R", help=ratio_help)
    documents_help = "the texts contain document markup: d (a line <d> before each document) or europarl (as released)"
    add("--documents", choices=list(MARKUPS), metavar="KIND", help=documents_help)
    separator_help = "add a word to the dictionaries, for use between the sentences of a document, for example <sep>"
    add("--document-separator", dest="separator", metavar="WORD", help=separator_help)
    add("--separate-dictionaries", action="store_true", help="one dictionary per language")
    add("--overwrite", action="store_true", help="replace a data-bin that this command created")


def prepare(arguments: argparse.Namespace) -> None:
    """Turn a bitext into a fairseq data-bin: read, check, tokenize, clean, segment with joint BPE, and binarize.

    P is a prefix: the texts are P.SRC and P.TGT, or P.SRC.gz and P.TGT.gz, in UTF-8, one sentence per line. Optional
    files: P.docs has the number of sentences of each document, one per line. P.align has gold word alignments of valid
    or test, 0-0 1-2, source word first; P.de-en.align fits either translation direction. Repeating a finished command
    does nothing.
    """
    from dataclasses import fields

    from relumt.corpora.bitext import SPLITS
    from relumt.corpora.options import Options
    from relumt.corpora.prepare import prepare as prepare_bitext

    if arguments.vocab_size is None and arguments.bpe != "none":
        arguments.vocab_size = DEFAULT_VOCAB_SIZE
    options = Options(**{field.name: getattr(arguments, field.name) for field in fields(Options)})
    prefixes = {split: getattr(arguments, split) for split in SPLITS}
    prepare_bitext(prefixes, arguments.out, options, arguments.overwrite)


def add_corpus_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `relumt corpus`."""
    from relumt.corpora.bpe import BPE_METHODS
    from relumt.corpora.published_corpora import CORPORA

    add = parser.add_argument
    add("corpus", metavar="CORPUS", choices=list(CORPORA), help=", ".join(CORPORA))
    add("--raw", type=Path, default=Path("raw"), help="folder of the published files (default: raw)")
    add("--out", type=Path, metavar="DIR", help="what to create (default: data-bin/CORPUS)")
    add("--bpe", default="subword-nmt", choices=list(BPE_METHODS), help="(default: subword-nmt)")
    add("--vocab-size", type=positive_integer, metavar="N", help="joint BPE merges (default: the corpus's own)")
    add("--overwrite", action="store_true", help="replace what this command created before")


def corpus(arguments: argparse.Namespace) -> None:
    """Turn a corpus of the papers into a data-bin, as they prepared it. `data_prep/` has a script for each.

    RAW holds the files that the corpus's makers publish; missing ones are downloaded.
    Tokenized texts are kept in OUT.text, so that a change of BPE repeats neither download nor tokenization.
    """
    from relumt.corpora.build import prepare_corpus
    from relumt.corpora.published_corpora import CORPORA

    chosen, out = CORPORA[arguments.corpus], arguments.out or Path("data-bin") / arguments.corpus
    prepare_corpus(chosen, arguments.raw, out, arguments.bpe, arguments.vocab_size, arguments.overwrite)


def add_import_contrast_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the set, where its contexts are, and where to write."""
    add = parser.add_argument
    add("set", type=Path, metavar="SET", help="file of the test set")
    add("--out", type=Path, required=True, metavar="FILE", help="file of examples to write")
    contexts = parser.add_mutually_exclusive_group()
    documents_help = "documents that setup_opensubs.sh of ContraPro made"
    contexts.add_argument("--documents", type=Path, metavar="DIR", help=documents_help)
    text_help = "P.text.LANGUAGE and P.context.LANGUAGE, as json2text_and_context.pl writes them"
    contexts.add_argument("--text", metavar="P", help=text_help)
    inputs_help = "file of CTXPro's release/inputs, a line for each sentence of the set"
    contexts.add_argument("--inputs", type=Path, metavar="FILE", help=inputs_help)
    context_help = "sentences before each at most (default: 5)"
    add("--context", type=whole_number, default=5, metavar="N", help=context_help)
    add("--language-pair", default="en-de", metavar="SRC-TGT", help="names of ContraPro's files (default: en-de)")


def import_contrast(arguments: argparse.Namespace) -> None:
    """Turn a public contrastive test set into examples for `relumt contrast`.

    SET is contrapro.json (or its entries, one per line, as .jsonl), a file of CTXPro, or anaphora.json or
    lexical-choice.json of Bawden et al. 2018, which contain their contexts. The contexts of ContraPro come from
    documents or from its text files, those of CTXPro from its inputs.
    """
    from relumt.corpora import contrastive

    if arguments.out.exists() and arguments.out.samefile(arguments.set):
        raise UserError(f"{arguments.out}: would overwrite the input {arguments.set}; choose another --out")
    source, _, target = arguments.language_pair.partition("-")
    if not source or not target:
        raise UserError(f"--language-pair {arguments.language_pair}: expected two languages, for example en-de")
    options = {"languages": (source, target), "count": arguments.context}
    find_contexts: contrastive.FindContexts | None = None
    if arguments.documents:
        find_contexts = partial(contrastive.contexts_of_documents, folder=arguments.documents, **options)
    elif arguments.text:
        find_contexts = partial(contrastive.contexts_of_text, prefix=arguments.text, **options)
    elif arguments.inputs:
        find_contexts = partial(contrastive.contexts_of_inputs, path=arguments.inputs, count=arguments.context)
    examples = contrastive.import_examples(arguments.set, find_contexts)
    contrastive.write_examples(arguments.out, examples)
    mean = sum(len(example.source_context) for example in examples) / len(examples)
    print_status(f"wrote {len(examples)} examples with {mean:.2f} sentences of context on average to {arguments.out}")
