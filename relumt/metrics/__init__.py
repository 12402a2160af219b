"""Measures of attention weights, feed-forward layers and alignments as pure functions, without fairseq."""
