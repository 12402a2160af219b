"""Saving, loading, averaging and recovering checkpoints."""
