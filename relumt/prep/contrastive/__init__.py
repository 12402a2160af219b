"""Public contrastive test sets as examples for `relumt contrast`."""
