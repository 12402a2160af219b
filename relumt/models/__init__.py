"""Models that fairseq registers."""
