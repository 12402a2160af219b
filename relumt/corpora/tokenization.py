"""Rewriting of lines: punctuation normalization, which takes a tenth of sacremoses' time, tokenization, lowercasing."""

import re
from collections.abc import Callable
from functools import cache, partial

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
    return list(map(moses_tokenizer(language), lines))


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
def moses_tokenizer(language: str) -> Callable[[str], str]:
    """Return the Moses tokenizer of a language, with default options and escapes (&apos; ...)."""
    from sacremoses import MosesTokenizer  # takes a second

    tokenizer = MosesTokenizer(lang=language)
    lowercase, letters = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    # sacremoses would build sets of all letters at every period.
    tokenizer.islower, tokenizer.isanyalpha = lowercase.issuperset, lambda text: not letters.isdisjoint(text)
    return partial(tokenizer.tokenize, return_str=True)
