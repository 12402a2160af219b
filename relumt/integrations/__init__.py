"""Adapters that let other libraries compute with relumt's mechanisms."""
