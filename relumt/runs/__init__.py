"""Runs: what one is made of, its record run.json, its scores, and tables of them."""
