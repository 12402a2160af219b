"""fairseq's dropout module with relumt's faster `dropout`."""

from fairseq.modules.fairseq_dropout import FairseqDropout
from torch import Tensor

from relumt.attention.dropout import dropout


class Dropout(FairseqDropout):
    """Dropout in training, and in inference if --retain-dropout asks for it."""

    def forward(self, x: Tensor, inplace: bool = False) -> Tensor:
        """Return `x` of any shape with dropout; never in place, whatever `inplace` allows."""
        return dropout(x, self.p) if self.training or self.apply_during_inference else x
