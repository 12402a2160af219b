"""Tasks that fairseq registers.

fairseq imports this package for `--user-dir` whatever its version, so an untested fairseq is refused here.
"""

from relumt.errors import exit_on_user_error
from relumt.fairseq_version import require_supported_fairseq

with exit_on_user_error():
    require_supported_fairseq()
