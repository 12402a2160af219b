"""Which values are valid: names of datasets, models and subsets, and numbers. msgspec checks them in files."""

from typing import Annotated

from msgspec import Meta

NAME = r"\A(?![-.])[^/:\x00-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]+\Z"
"""Pattern of the name of a dataset, a model or a file in a run's folder. fairseq splits paths at colons."""

MAX_NAME_BYTES = 200
"""File systems allow 255; names of files beside it are longer."""

LANGUAGE = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,31}\Z"
"""Pattern of a language code."""

SUBSET = r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z"
"""Pattern of the name of a subset of a data-bin: "train", "valid", "test", "test1"."""

Name = Annotated[str, Meta(pattern=NAME, max_length=MAX_NAME_BYTES)]
Subset = Annotated[str, Meta(pattern=SUBSET)]
Count = Annotated[int, Meta(ge=0, le=2**63 - 1)]
NonNegative = Annotated[float, Meta(ge=0)]
