"""relumt: attention without softmax for machine translation."""
