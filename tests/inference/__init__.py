"""Tests of trained models in use."""
