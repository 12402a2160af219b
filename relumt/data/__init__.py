"""Documents made of a sentence-level data-bin on the fly."""
