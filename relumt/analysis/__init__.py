"""Trained models measured on a test set: attention, feed-forward layers, contrastive tests, report and plots."""
