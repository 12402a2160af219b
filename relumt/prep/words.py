"""Word-level rewriting of lines: Moses tokenisation and lower-casing."""


def tokenise(lines: list[str], language: str) -> list[str]:
    """Return the lines as sacremoses splits them, with Moses' default options and escapes (&apos; ...)."""
    from sacremoses import MosesTokenizer

    tokenizer = MosesTokenizer(lang=language)
    return [tokenizer.tokenize(line, return_str=True) for line in lines]


def lowercase(lines: list[str]) -> list[str]:
    """Return the lines in lower case."""
    return [line.lower() for line in lines]
