"""Criteria that fairseq registers."""
