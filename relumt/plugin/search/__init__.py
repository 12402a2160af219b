"""Beam search: fairseq's, with fewer steps and copies."""
