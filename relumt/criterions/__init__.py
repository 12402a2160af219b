"""Criterions that fairseq registers."""
