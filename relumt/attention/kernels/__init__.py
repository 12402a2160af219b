"""Implementations of mechanisms that have more than one, the fused ones among them, behind the same functions."""
