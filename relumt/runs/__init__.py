"""Runs: their configuration, the steps of training and evaluation, the record run.json, and scores."""
