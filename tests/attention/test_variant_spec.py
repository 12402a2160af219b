"""Options of mechanisms that users register from their own modules."""

from dataclasses import dataclass

from relumt.attention.variant_spec import VariantSpec

MODULE = """
from __future__ import annotations
from dataclasses import dataclass, field

@dataclass
class Options:
    alpha: float = field(default=1.5, metadata={"help": "a number"})
"""


@dataclass
class Built:
    """What a factory returns."""

    options: object


def test_annotations_may_be_texts():
    """`from __future__ import annotations` leaves texts in the fields of a dataclass."""
    module = {"__name__": "tests.attention.test_variant_spec"}
    exec(MODULE, module)
    assert module["Options"].__dataclass_fields__["alpha"].type == "float"
    spec = VariantSpec(Built, module["Options"], "x")
    assert [(name, option.type) for name, option in spec.flags()] == [("x_alpha", float)]
