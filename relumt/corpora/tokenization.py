"""Rewriting of lines word by word: punctuation normalization, Moses tokenization and lowercasing.

The tokenizer and the punctuation normalizer have sacremoses' results in a tenth of its time. A Moses token depends on
its word and on little else: on whether the word is the first or the last of its line, and, after a period, on the first
character of the next word. So a word is tokenized once in each of these contexts, by sacremoses itself, and looked up
from then on. Lines to which this does not apply are tokenized as a whole.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache

CHARACTERS = {"zh": re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f])")}
"""Languages written without spaces: every character of these Unicode blocks is a word, which BPE never merges."""

BLEU_TOKENIZERS = {"zh": "zh", "ja": "char", "ko": "char"}
"""Languages that sacreBLEU does not tokenize by 13a → its tokenizer.

It recommends MeCab for Japanese and Korean, an extra package, without which a trained model could not be scored.
"""

OF_MACROLANGUAGE = {"cmn": "zh", "lvs": "lv", "ory": "or"}
"""Codes of languages, as in FLORES, that sacremoses knows by the code of their macrolanguage."""


@cache
def primary_language(code: str) -> str:
    """Return the code by which sacremoses knows a language: "pt" for pt-BR, pt_br and por, "zh" for zho_Hans and cmn.

    Of codes that are none of ISO 639 what precedes the first - or _ is returned.
    """
    primary = re.split("[-_]", code, maxsplit=1)[0].lower()
    if primary in OF_MACROLANGUAGE:
        return OF_MACROLANGUAGE[primary]
    if len(primary) != 3:
        return primary
    from langcodes import Language  # takes a fifth of a second

    return Language.get(primary).language or primary


def bleu_tokenizer(language: str) -> str:
    """Return sacreBLEU's tokenizer for plain text in a language."""
    return BLEU_TOKENIZERS.get(primary_language(language), "13a")


def normalize_punctuation(lines: list[str], language: str) -> list[str]:
    """Map the variants of quotation marks, dashes and spaces to one each, as Moses does."""
    return list(map(punctuation_normalizer(primary_language(language)), lines))


def tokenize(lines: list[str], language: str) -> list[str]:
    """Split words with sacremoses, with Moses' default options and escapes (&apos; ...).

    In a language written without spaces, every character is split off as well.
    """
    language = primary_language(language)
    if language in CHARACTERS:
        lines = [CHARACTERS[language].sub(r" \1 ", line) for line in lines]
    return list(map(word_tokenizer(language).tokenize, lines))


def detokenize(lines: list[str], language: str) -> list[str]:
    """Join Moses tokens with sacremoses and undo Moses' escapes (&apos; ...), and join what it leaves apart."""
    from sacremoses import MosesDetokenizer

    language = primary_language(language)
    detokenizer = MosesDetokenizer(lang=language)
    return [join_split_words(detokenizer.detokenize(line.split(" ")), language) for line in lines]


JOINERS = re.compile("(?<=\\S) ([\u200c\u200d]) (?=\\S)")
"""Zero-width joiners within letters, as in Sinhala and Persian, and within emoji."""

MARKUP = (
    (re.compile(r"& (quot|amp|lt|gt|apos);"), r"&\1;"),
    (re.compile(r"< skipped >"), "<skipped>"),
)
"""What sacreBLEU's tokenizer 13a rewrites in references, where it is in one piece."""

LETTER = r"[^\W\d_]"
ELISION = re.compile(rf"({LETTER}) ’ (?={LETTER})")
APOSTROPHES = (
    (re.compile(rf"(?<={LETTER}) ’ (?=(?:s|t|d|m|re|ve|ll)\b)", re.IGNORECASE), "’"),  # yesterday’s, don’t
    (re.compile(rf"\b({LETTER}) ’ (?={LETTER})"), r"\1’"),  # l’amitié, O’Neill
    (re.compile(r" ’ (?=\d)"), " ’"),  # ’90s
    (re.compile(r"(?<=\w) ’(?=[ ,.!?;:)]|$)"), "’"),  # the students’ work
)

ELIDING = ("ca", "fr", "ga", "it")
"""Languages in which an apostrophe between two letters joins two words."""


def join_split_words(line: str, language: str) -> str:
    """Join what Moses' tokenizer splits and its detokenizer leaves apart: ’ as an apostrophe, joiners, and markup."""
    if "’" in line and "‘" not in line:  # which would make ’ a quotation mark
        line = ELISION.sub(r"\1’", line) if language in ELIDING else line
        for pattern, joined in APOSTROPHES:
            line = pattern.sub(joined, line)
    for pattern, joined in MARKUP:
        line = pattern.sub(joined, line)
    return JOINERS.sub(r"\1", line)


def lowercase(lines: list[str]) -> list[str]:
    """Lowercase the lines."""
    return [line.lower() for line in lines]


MAX_CACHED_WORDS = 1 << 17
"""Bounds the memory of a process; about 50 MB."""

LOWERCASE, DIGIT, OTHER = "x", "0", "X"
"""Words that stand for a following word which starts with such a character. Moses does not change them."""

ONE_PUNCTUATION_MARK = re.compile("[()\r`„“”–—´‘’‚…«»\xa0\"]| [ %:;]|''")
"""Occurs in every line that the normalizer changes, apart from its ends."""


@cache
def punctuation_normalizer(language: str) -> Callable[[str], str]:
    """Return Moses' punctuation normalizer of a language, with default options."""
    from sacremoses import MosesPunctNormalizer  # takes a second

    substitutions = [(re.compile(old), new) for old, new in MosesPunctNormalizer(lang=language).substitutions]

    def normalize(line: str) -> str:
        for pattern, replacement in substitutions if ONE_PUNCTUATION_MARK.search(line) else ():
            line = pattern.sub(replacement, line)
        return line.strip()

    return normalize


@cache
def word_tokenizer(language: str) -> "WordTokenizer":
    """Return the tokenizer of a language, which remembers words."""
    return WordTokenizer(language)


class WordTokenizer:
    """The Moses tokenizer of a language, with default options and escapes (&apos; ...)."""

    def __init__(self, language: str) -> None:
        from sacremoses import MosesTokenizer  # takes a second

        self.moses = MosesTokenizer(lang=language)
        self.lowercase, letters = frozenset(self.moses.IsLower), frozenset(self.moses.IsAlpha)
        # sacremoses would build sets of all letters at every period.
        self.moses.islower, self.moses.isanyalpha = self.lowercase.issuperset, lambda text: not letters.isdisjoint(text)
        self.tokenize_word = lru_cache(MAX_CACHED_WORDS)(self._tokenize_word)

    def tokenize(self, line: str) -> str:
        """Return the tokens of a line, separated by spaces, as `MosesTokenizer.tokenize` does."""
        # Moses removes control characters, replaces runs of dots by markers that end in MULTI, and reads the space
        # between two apostrophes only once.
        if not line.isprintable() or "MULTI" in line or "' '" in line:
            return str(self.moses.tokenize(line, return_str=True))
        words = line.split()
        for index, word in enumerate(words):
            if not (word.isascii() and word.isalnum()):
                words[index] = self.tokenize_word(word, self.following(words, index), index == 0)
        return " ".join(words)

    def following(self, words: list[str], index: int) -> str:
        """Return what stands for the word after words[index]; nothing if that is the last one."""
        if index == len(words) - 1:
            return ""
        first = words[index + 1][0] if words[index][-1] == "." else OTHER
        return LOWERCASE if first in self.lowercase else DIGIT if first in "0123456789" else OTHER

    def _tokenize_word(self, word: str, following: str, is_first: bool) -> str:
        """Return the tokens of a word before `following`, which is empty at the end of a line."""
        before, after = "" if is_first else f"{OTHER} ", following and f" {following}"
        tokens = str(self.moses.tokenize(before + word + after, return_str=True))
        return tokens[len(before) : len(tokens) - len(after)]
