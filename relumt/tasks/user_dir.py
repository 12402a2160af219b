"""Refuses a fairseq that relumt was not tested with: fairseq imports this module for `--user-dir`."""

from relumt.errors import exit_on_user_error
from relumt.fairseq_version import require_supported_fairseq

with exit_on_user_error():
    require_supported_fairseq()
