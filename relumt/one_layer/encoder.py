"""A Transformer layer around any mechanism of `relumt.attention`. Shapes: B batch, T tokens, E = H·D, H heads."""

from typing import Any

from torch import Tensor, nn

from relumt.attention import MECHANISMS, AttentionMask


class SelfAttention(nn.Module):
    """Multi-head self-attention that computes with a mechanism.

    The projections start as in Vaswani et al. (Xavier uniform, biases 0); then the mechanism adjusts those of queries
    and keys (`init_projections`).

    Args:
        embed_dim: E.
        num_heads: H.
        mechanism: name in `relumt.attention.MECHANISMS`.
        **options: of the mechanism.
    """

    def __init__(self, embed_dim: int, num_heads: int, mechanism: str, **options: Any) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(embed_dim, embed_dim) for _ in range(4))
        for projection in (self.q_proj, self.k_proj, self.v_proj, self.out_proj):
            nn.init.xavier_uniform_(projection.weight)
            nn.init.zeros_(projection.bias)
        self.mechanism = MECHANISMS[mechanism](num_heads, embed_dim // num_heads, **options)
        self.mechanism.init_projections(self.q_proj, self.k_proj)

    def forward(self, x: Tensor, key_mask: Tensor | None) -> Tensor:
        """Let each token of x [B, T, E] attend to those where `key_mask` [B, T] is true, or to all."""
        q, k, v = (self.split_heads(projection(x)) for projection in (self.q_proj, self.k_proj, self.v_proj))
        heads = self.mechanism(q, k, v, AttentionMask(key_mask)).output
        # [B, H, T, D] -> [T, B, E] -> [B, T, E]
        x = self.mechanism.postprocess_heads(heads.permute(2, 0, 1, 3).flatten(2)).transpose(0, 1)
        output: Tensor = self.out_proj(x)
        return output

    def split_heads(self, x: Tensor) -> Tensor:
        """Reshape [B, T, E] -> [B, H, T, D]."""
        return x.unflatten(-1, (self.mechanism.num_heads, self.mechanism.head_dim)).transpose(1, 2)


class EncoderLayer(nn.Module):
    """A post-norm Transformer layer; its input is normalized, too, because the Inhibitor expects variance 1.

    Args:
        attention: the self-attention.
        embed_dim: E.
        feed_forward_dim: width of the hidden layer of the feed-forward network.
        dropout: probability after both sublayers.
    """

    def __init__(self, attention: SelfAttention, embed_dim: int, feed_forward_dim: int, dropout: float) -> None:
        super().__init__()
        self.attention = attention
        self.feed_forward = nn.Sequential(
            nn.Linear(embed_dim, feed_forward_dim), nn.ReLU(), nn.Linear(feed_forward_dim, embed_dim)
        )
        self.input_norm, self.attention_norm, self.output_norm = (nn.LayerNorm(embed_dim) for _ in range(3))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, key_mask: Tensor | None = None) -> Tensor:
        """Transform tokens [B, T, E]; `key_mask` [B, T] is False at padding."""
        x = self.input_norm(x)
        x = self.attention_norm(x + self.dropout(self.attention(x, key_mask)))
        x = self.output_norm(x + self.dropout(self.feed_forward(x)))
        return x
