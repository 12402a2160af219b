"""Accuracy on CTXPro: does the model's translation of a sentence have the form that the context asks for?

As in `ctxpro score`, the last sentence of the translated text counts.
"""

import re
import string
from collections.abc import Sequence
from statistics import fmean
from typing import Any

from relumt.analysis.contrast import accuracies, num_left_out
from relumt.corpora.contrastive import FormExample
from relumt.runs.inference.translator import Translator

SENTENCE_END = re.compile(r"""[.!?]["'”“»)\]]* +(?=["'„“«(\[¿¡]*(?P<next>\w))""")


def measure_forms(translator: Translator, examples: Sequence[FormExample], batch_size: int) -> dict[str, Any]:
    """Return the share of translations with the expected form, and how many sentences of context the model has read.

    As many of the sentences before an example are translated with it as fit into a chunk.
    """
    separator, _ = translator.loaded.separators
    texts = [[*example.source_context, example.source] for example in examples]
    documents = [own[num_left_out(translator.loaded, (translator.encoding.encode(own), separator)) :] for own in texts]
    found = translator.translate_documents(documents, batch_size=batch_size)
    translations = [last_sentence(" ".join(chunk.text for chunk in chunks)) for chunks in found]
    decisions = [has_words(text, example.expected) for text, example in zip(translations, examples, strict=True)]
    num_context = fmean(len(document) - 1 for document in documents)
    summary = {"examples": len(examples), "accuracy": fmean(decisions), "mean_context_sentences": num_context}
    return summary | accuracies(examples, decisions)


def last_sentence(text: str) -> str:
    """Return the last sentence of a text: what follows the last punctuation that a word not in lower case follows.

    The result is that of the sentence splitter in `ctxpro score` except after abbreviations such as "Mr.".
    """
    starts = [match.end() for match in SENTENCE_END.finditer(text) if not match["next"].islower()]
    return text[starts[-1] :] if starts else text


def has_words(text: str, words: str) -> bool:
    """Return whether a text contains words, whatever their case and the text's punctuation."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return f" {words.lower()} " in f" {kept} "
