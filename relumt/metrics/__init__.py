"""Metrics of attention, feed-forward layers and alignments: plain PyTorch, no fairseq."""
