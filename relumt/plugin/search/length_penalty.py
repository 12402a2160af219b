"""Length penalties: what a finished hypothesis' log-probability is divided by, --length-penalty.

    length:  len^p               fairseq's, the default
    gnmt:    ((5 + len) / 6)^p   Wu et al. 2016 (GNMT), and the code of Zhang et al. 2021 [RL]

p is fairseq's --lenpen. len counts the end-of-sentence symbol, both in fairseq (`finalize_hypos`: step + 1, steps from
0) and in [RL]'s code (github.com/bzhangGo/zero, search.py: time + 1). Hypotheses of the same step have the same len, so
the penalty decides only which of the finished hypotheses is best, and not which ones are found.
"""

from collections.abc import Callable
from typing import Any

from relumt.errors import UserError, quote

FAIRSEQ_PENALTY = "length"
"""The penalty that fairseq knows; it needs no generator of ours."""

LENGTH_PENALTIES: dict[str, Callable[[int, float], float]] = {
    FAIRSEQ_PENALTY: lambda length, power: length**power,
    "gnmt": lambda length, power: ((5 + length) / 6) ** power,
}
"""Name → the divisor for a number of tokens and a power."""


def check_length_penalty(settings: Any) -> None:
    """Check the penalty in fairseq's settings of generation.

    Raises:
        UserError: the name is unknown, or --unnormalized would leave the penalty without effect.
    """
    name = getattr(settings, "length_penalty", FAIRSEQ_PENALTY)
    if name not in LENGTH_PENALTIES:
        known = ", ".join(LENGTH_PENALTIES)
        raise UserError(f"unknown --length-penalty {quote(str(name))}; choose from {known} (--lenpen sets its power)")
    if name != FAIRSEQ_PENALTY and getattr(settings, "unnormalized", False):
        raise UserError(f"--length-penalty {name} has no effect with --unnormalized; drop one of them")
