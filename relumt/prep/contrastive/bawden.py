"""The English-French test sets of Bawden et al. 2018 (github.com/rbawden/discourse-mt-test-sets) as examples.

A file maps numbers to blocks. In anaphora.json, a block has a source (two sentences: context and current) and several
translations of both with a right and a wrong second sentence. In lexical-choice.json, it has several sources with one
such translation each. The right and the wrong translation share the context.
"""

from collections.abc import Iterator

import msgspec

from relumt.prep.contrastive.example import ExampleInContext

Pair = tuple[str, str]
"""The sentence before, and the current one."""


class Translation(msgspec.Struct):
    """A right and a wrong translation; semi-correct is one with an unusual word for the antecedent."""

    incorrect: Pair
    correct: Pair | None = None
    semi_correct: Pair | None = msgspec.field(default=None, name="semi-correct")
    type: str = ""

    def __post_init__(self) -> None:
        if (self.correct is None) == (self.semi_correct is None):
            raise ValueError("expected either 'correct' or 'semi-correct'")


class LexicalExample(msgspec.Struct):
    """A source with its translations."""

    src: Pair
    trg: Translation


class Block(msgspec.Struct):
    """A block of either file."""

    src: Pair | None = None
    trg: list[Translation] = []
    type: str = ""
    examples: list[LexicalExample] = []

    def __post_init__(self) -> None:
        if bool(self.trg) == bool(self.examples) or bool(self.trg) != bool(self.src):
            raise ValueError("expected either 'src' and 'trg' or 'examples'")


BawdenFile = dict[str, Block]


def bawden_examples(blocks: BawdenFile) -> Iterator[ExampleInContext]:
    """Yield the examples in the order of the authors' scripts, by the number of the block.

    Raises:
        ValueError: the translations of an example are not valid.
    """
    for name, block in sorted(blocks.items(), key=lambda item: (item[0].zfill(20), item[0])):
        if block.src:
            for translation in block.trg:
                kind = "correct" if translation.correct else "semi-correct"
                categories = {"translation": kind} | ({"pronoun": translation.type} if translation.type else {})
                yield example(name, block.src, translation, 1, categories)
        for lexical in block.examples:
            yield example(name, lexical.src, lexical.trg, None, {"type": block.type} if block.type else {})


def example(
    block: str, source: Pair, translation: Translation, distance: int | None, categories: dict[str, str]
) -> ExampleInContext:
    """Return an example; raises ValueError if its translations are not valid."""
    right = translation.correct or translation.semi_correct
    assert right, "Translation has one of them"
    return ExampleInContext(
        source=source[1],
        target=right[1],
        wrong=[translation.incorrect[1]],
        source_context=[source[0]],
        target_context=[right[0]],
        distance=distance,
        categories=categories,
        block=block,
    )
