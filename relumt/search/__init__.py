"""Beam search with fewer passes over the scores than fairseq's, and the same hypotheses; length penalties."""
