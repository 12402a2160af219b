"""Texts on which a tokenizer or a segmentation could go wrong."""

from hypothesis import strategies as st

PIECES = [
    *"aZé5.,'`-\"()&|<[]?!:;%½²ﬁ日ſ٣…’‘„“”–—´‚«» ",
    *("Mr.", "z.B.", "No.", "Nr.", "u.s.", "...", "..", "DOT", "MULTI", "'s", "n't", "' ", "' '", "  ", "5,300", ",5"),
    *("5,", "word", "Wort", "\xad", "\u200b", "\x01", "\t", "\xa0", "nº", "\u0307", "Ⅷ", "कि", "@@", "</w>", "\\"),
]

awkward_lines = st.lists(st.sampled_from(PIECES), max_size=14).map("".join)
"""Lines of punctuation, abbreviations, numbers, and characters that a tokenizer may not know."""
