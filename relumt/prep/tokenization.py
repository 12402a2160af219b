"""Word-level rewriting of lines: plain punctuation, Moses tokenisation and lower-casing."""

import re

CHARACTERS = {"zh": re.compile("([\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003134f])")}
"""Languages written without spaces: every character of these blocks is a word, and BPE puts none of them together."""


def normalize_punctuation(lines: list[str], language: str) -> list[str]:
    """Return the lines with the quotation marks, dashes and spaces that Moses makes of all their kinds."""
    from sacremoses import MosesPunctNormalizer

    normalizer = MosesPunctNormalizer(lang=language)
    return [normalizer.normalize(line) for line in lines]


def tokenize(lines: list[str], language: str) -> list[str]:
    """Return the lines as sacremoses splits them, with Moses' default options and escapes (&apos; ...).

    In a language written without spaces its characters are split too.
    """
    from sacremoses import MosesTokenizer

    if language in CHARACTERS:
        lines = [CHARACTERS[language].sub(r" \1 ", line) for line in lines]
    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def detokenize(lines: list[str], language: str) -> list[str]:
    """Moses tokens put together again by sacremoses, its escapes (&apos; …) undone."""
    from sacremoses import MosesDetokenizer

    detokenizer = MosesDetokenizer(lang=language)
    return [detokenizer.detokenize(line.split(" ")) for line in lines]


def lowercase(lines: list[str]) -> list[str]:
    """Return the lines in lower case."""
    return [line.lower() for line in lines]
