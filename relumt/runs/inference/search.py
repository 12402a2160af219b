"""Beam search: its settings, those that a run was evaluated with or fairseq's defaults, and batches for it."""

from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import Annotated, Literal

import msgspec
import numpy as np
from fairseq.data.data_utils import batch_by_size
from msgspec import Meta

from relumt.errors import UserError, print_status
from relumt.plugin.tasks.documents import MAX_LEN_A
from relumt.runs.record import RUN_RECORD, RunRecord

MAX_BEAM = 1000
"""A larger beam needs more memory than any machine has, and no search needs it."""

Beam = Annotated[int, Meta(ge=1, le=MAX_BEAM)]
Count = Annotated[int, Meta(ge=0, le=2**20)]

MAX_TOKENS = 12_000
"""Tokens in a batch with padding, at most; fairseq-generate's default for source tokens."""

UNSUPPORTED_FLAGS = """
--bf16 --constraints --diverse-beam-groups --diversity-rate --fp16 --lm-path --lm-weight --match-source-len
--model-overrides --prefix-size --replace-unk --retain-dropout --retain-dropout-modules --sampling --score-reference
""".split()
"""Flags of fairseq-generate that change translations and that `SearchSettings` has no field for."""


@dataclass(frozen=True)
class SearchSettings:
    """What decides the hypotheses of a beam search and their scores, with fairseq's names and defaults.

    Attributes:
        beam: number of hypotheses that are continued.
        lenpen: power of the length penalty.
        length_penalty: its form, a key of `LENGTH_PENALTIES`.
        unnormalized: do not divide scores by the length penalty.
        max_len_a, max_len_b: a translation has at most a·n + b tokens, n those of the longest source in its batch.
        min_len: the fewest tokens of a translation.
        unkpen: what an unknown word costs.
        temperature: divides the logits.
        no_repeat_ngram_size: n-grams of this size occur only once; 0: any may repeat.
    """

    beam: Beam = 5
    lenpen: float = 1.0
    length_penalty: Literal["length", "gnmt"] = "length"
    unnormalized: bool = False
    max_len_a: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    max_len_b: Count = 200
    min_len: Count = 1
    unkpen: float = 0.0
    temperature: Annotated[float, Meta(gt=0, le=1e6)] = 1.0
    no_repeat_ngram_size: Count = 0

    def as_arguments(self) -> Namespace:
        """Return the settings as fairseq's tasks take them to build a generator."""
        return Namespace(**asdict(self))


def search_of_run(record: RunRecord | None, document_length: int = 0) -> SearchSettings:
    """Return the settings with which a run's test set was translated, else another subset, else the defaults.

    Flags that cannot be followed are printed. The defaults are fairseq's, except --max-len-a of a model of documents,
    which would be cut off at 200 tokens: it is that of training.

    Args:
        record: the run's record, None without a run.
        document_length: the most tokens in the chunks of documents that the model was trained on; 0 for sentences.

    Raises:
        UserError: a flag in the record has an impossible value.
    """
    if record is None or not record.evaluations:
        return SearchSettings(max_len_a=MAX_LEN_A) if document_length else SearchSettings()
    flags = record.ordered_evaluations[0].setup.flags
    if ignored := [flag for flag in UNSUPPORTED_FLAGS if flag in flags]:
        print_status(f"{record.name} was evaluated with {' '.join(ignored)}; translating without")
    return settings_of_flags(flags, f"{RUN_RECORD} of {record.name}")


def settings_of_flags(flags: Mapping[str, str], name: str) -> SearchSettings:
    """Return the settings that flags of fairseq-generate ask for; a flag without a value is "".

    Raises:
        UserError: a value is impossible; the message begins with `name`.
    """
    known = {f"--{field.name.replace('_', '-')}": field.name for field in fields(SearchSettings)}
    values = {known[flag]: value or True for flag, value in flags.items() if flag in known}
    try:
        return msgspec.convert(values, SearchSettings, strict=False)
    except msgspec.ValidationError as error:
        raise UserError(f"{name}: not a search that can be made ({error}); evaluate the run again") from None


def batches_by_length(
    lengths: Iterable[int], batch_size: int | None = None, max_tokens: int = MAX_TOKENS
) -> Iterator[list[int]]:
    """Yield batches of the indices of sentences of similar length, from the shortest to the longest.

    Args:
        lengths: tokens of each sentence.
        batch_size: sentences in a batch, at most; None for no limit.
        max_tokens: tokens in a batch with padding, at most. If a sentence is longer, its length is the limit instead.
    """
    sizes = np.fromiter(lengths, dtype=np.int64)
    order = np.argsort(sizes, kind="stable")
    limit = max(max_tokens, int(sizes.max(initial=0)))
    # fairseq reads the sizes in the order of the indices
    for batch in batch_by_size(order, lambda _: 0, sizes[order], max_tokens=limit, max_sentences=batch_size):
        yield batch.tolist()
