"""Tasks that fairseq registers."""
