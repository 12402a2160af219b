"""Checkpoint files: saving that survives crashes, loading that runs no code, recovery, averaging.

`integrity` finds damage, `settings` and `vetting` say what of a checkpoint fairseq may see, `loading` reads one with
both checks, `saving` writes one, `recovery` chooses the one to resume from. `fairseq_hooks` makes fairseq use them.
"""
