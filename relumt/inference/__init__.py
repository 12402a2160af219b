"""Trained models in use: loading them, translating text with them, and exporting them to other formats."""
