"""Attacks: what users get wrong, damaged files, malicious checkpoints, kills and faults (docs/reliability.md)."""
