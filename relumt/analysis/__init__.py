"""Measures of trained models, as pure functions, and their collection over a test set."""
