"""The entropy-margin regularizer and faster losses, as criterions of fairseq."""
