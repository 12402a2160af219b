"""Measures of attention weights and feed-forward layers: plain PyTorch."""
