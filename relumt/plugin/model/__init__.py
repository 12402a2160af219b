"""The Transformer with a mechanism of `relumt.attention` at each of fairseq's attention layers."""
