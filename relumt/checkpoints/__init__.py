"""Checkpoint files: saving that survives crashes, loading that runs no code, recovery, averaging.

`folder` finds files and damage, `loading` reads a checkpoint and says what of it fairseq may see, `recovery` saves one
and chooses the one to resume from. `fairseq_hooks` makes fairseq use them.
"""
