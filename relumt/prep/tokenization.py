"""Rewriting of lines word by word: punctuation normalization, Moses tokenization and lowercasing."""

import re
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from relumt.prep.moses import PunctuationNormalizer, WordTokenizer

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
    return list(map(_punctuation_normalizer(primary_language(language)).normalize, lines))


def tokenize(lines: list[str], language: str) -> list[str]:
    """Split words with sacremoses, with Moses' default options and escapes (&apos; ...).

    In a language written without spaces, every character is split off as well.
    """
    language = primary_language(language)
    if language in CHARACTERS:
        lines = [CHARACTERS[language].sub(r" \1 ", line) for line in lines]
    return list(map(_word_tokenizer(language).tokenize, lines))


def detokenize(lines: list[str], language: str) -> list[str]:
    """Join Moses tokens with sacremoses and undo Moses' escapes (&apos; ...)."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=primary_language(language))
    return [detokenizer.detokenize(line.split(" ")) for line in lines]


def lowercase(lines: list[str]) -> list[str]:
    """Lowercase the lines."""
    return [line.lower() for line in lines]


@cache
def _punctuation_normalizer(language: str) -> "PunctuationNormalizer":
    from relumt.prep.moses import PunctuationNormalizer  # takes a second

    return PunctuationNormalizer(language)


@cache
def _word_tokenizer(language: str) -> "WordTokenizer":
    from relumt.prep.moses import WordTokenizer

    return WordTokenizer(language)
