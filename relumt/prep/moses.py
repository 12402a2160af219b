"""sacremoses' tokenizer and punctuation normalizer, with the same results in a tenth of their time.

A Moses token depends on its word and on little else: on whether the word is the first or the last of its line, and,
after a period, on the first character of the next word. So a word is tokenized once in each of these contexts, by
sacremoses itself, and looked up from then on. Lines to which this does not apply are tokenized as a whole.
"""

import re
from functools import lru_cache

from sacremoses import MosesPunctNormalizer, MosesTokenizer

MAX_CACHED_WORDS = 1 << 17
"""Bounds the memory of a process; about 50 MB."""

LOWERCASE, DIGIT, OTHER = "x", "0", "X"
"""Words that stand for a following word which starts with such a character. Moses does not change them."""

ONE_PUNCTUATION_MARK = re.compile("[()\r`„“”–—´‘’‚…«»\xa0\"]| [ %:;]|''")
"""Occurs in every line that the normalizer changes, apart from its ends."""


class WordTokenizer:
    """The Moses tokenizer of a language, with default options and escapes (&apos; ...)."""

    def __init__(self, language: str) -> None:
        self.moses = _MosesTokenizer(lang=language)
        self.tokenize_word = lru_cache(MAX_CACHED_WORDS)(self._tokenize_word)

    def tokenize(self, line: str) -> str:
        """Return the tokens of a line, separated by spaces, as `MosesTokenizer.tokenize` does."""
        # Moses removes control characters, replaces runs of dots by markers that end in MULTI, and reads the space
        # between two apostrophes only once.
        if not line.isprintable() or "MULTI" in line or "' '" in line:
            return str(self.moses.tokenize(line, return_str=True))
        words = line.split()
        return " ".join(
            [
                word
                if word.isascii() and word.isalnum()
                else self.tokenize_word(word, self.following(words, index), index == 0)
                for index, word in enumerate(words)
            ]
        )

    def following(self, words: list[str], index: int) -> str:
        """Return what stands for the word after words[index]; nothing if that is the last one."""
        if index == len(words) - 1:
            return ""
        if words[index][-1] != ".":
            return OTHER
        first = words[index + 1][0]
        if first in self.moses.lowercase:
            return LOWERCASE
        return DIGIT if first in "0123456789" else OTHER

    def _tokenize_word(self, word: str, following: str, is_first: bool) -> str:
        """Return the tokens of a word before `following`, which is empty at the end of a line."""
        before, after = "" if is_first else f"{OTHER} ", following and f" {following}"
        tokens = str(self.moses.tokenize(before + word + after, return_str=True))
        return tokens[len(before) : len(tokens) - len(after)]


class _MosesTokenizer(MosesTokenizer):
    """sacremoses' tokenizer, which would build sets of all letters at every period."""

    def __init__(self, lang: str) -> None:
        super().__init__(lang=lang)
        self.lowercase, self.letters = frozenset(self.IsLower), frozenset(self.IsAlpha)

    def islower(self, text: str) -> bool:
        return self.lowercase.issuperset(text)

    def isanyalpha(self, text: str) -> bool:
        return not self.letters.isdisjoint(text)


class PunctuationNormalizer:
    """The Moses punctuation normalizer of a language, with default options."""

    def __init__(self, language: str) -> None:
        substitutions = MosesPunctNormalizer(lang=language).substitutions
        self.substitutions = [(re.compile(pattern), replacement) for pattern, replacement in substitutions]

    def normalize(self, line: str) -> str:
        """Return the line with the variants of a punctuation mark mapped to one."""
        if ONE_PUNCTUATION_MARK.search(line):
            for pattern, replacement in self.substitutions:
                line = pattern.sub(replacement, line)
        return line.strip()
