"""Words of subwords, and attention weights of words. Shapes: B batch, H heads, T queries, S keys, W words.

[RL] §5.2 merges subwords into words. Weights of subwords become weights of words by a sum over the subwords of a key
and a mean over those of a query, so a row that sums to 1 still does.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

SPECIAL_SYMBOLS = frozenset(("<s>", "<pad>", "</s>", "<unk>"))
"""fairseq's symbols, each a word of its own. An unknown subword does not tell whether its word goes on."""

NO_WORD = -1
"""Word index of a position that belongs to no word, such as padding."""


def word_indices(tokens: Sequence[str], subwords: str) -> list[int]:
    """Return the index of the word that each subword belongs to, from 0.

    Args:
        tokens: subwords of a sentence; each of fairseq's special symbols is a word of its own.
        subwords: segmentation: "subword-nmt" (a piece that does not end its word ends in @@), "sentencepiece" (a piece
            that starts a word begins with ▁) or "none".
    """
    indices: list[int] = []
    for position, token in enumerate(tokens):
        previous = tokens[position - 1]
        if token in SPECIAL_SYMBOLS or previous in SPECIAL_SYMBOLS:
            starts_word = True
        elif subwords == "subword-nmt":
            starts_word = not previous.endswith("@@")
        else:
            starts_word = subwords == "none" or token.startswith("▁")
        indices.append(indices[-1] + starts_word if indices else 0)
    return indices


def join_words(tokens: Sequence[str], subwords: str) -> list[str]:
    """Return the words of a sentence without markers of subwords; the arguments are those of `word_indices`."""
    words: list[str] = []
    for token, index in zip(tokens, word_indices(tokens, subwords), strict=True):
        if index == len(words):
            words.append("")
        words[index] += token.removesuffix("@@") if subwords == "subword-nmt" else token
    return [word.removeprefix("▁") for word in words] if subwords == "sentencepiece" else words


def belongs_to_word(words: Tensor) -> Tensor:
    """Return which positions belong to which word, [..., W, T] bool.

    Args:
        words: index of the word of each position, [..., T] int64; NO_WORD for padding.
    """
    num_words = int(words.max()) + 1 if words.numel() else 0
    return words.unsqueeze(-2) == torch.arange(num_words, device=words.device)[:, None]


def merge_queries(x: Tensor, query_words: Tensor) -> Tensor:
    """Average x [..., H, T, N] over the subwords of each query, [..., H, query words, N]; 0 for a word without any.

    Args:
        x: values of each query.
        query_words: index of the word of each query, [..., T].
    """
    members = belongs_to_word(query_words).to(x)
    return (members / members.sum(-1, keepdim=True).clamp(min=1)).unsqueeze(-3) @ x


def merge_to_words(weights: Tensor, query_words: Tensor, key_words: Tensor) -> Tensor:
    """Merge the weights of subwords [..., H, T, S] to weights of words [..., H, query words, key words].

    Args:
        weights: [..., H, T, S].
        query_words: index of the word of each query, [..., T] int64.
        key_words: the same for the keys, [..., S].
    """
    to_key_words = belongs_to_word(key_words).to(weights).transpose(-2, -1)  # [..., W, S] -> [..., S, W]
    return merge_queries(weights @ to_key_words.unsqueeze(-3), query_words)


def merge_visibility(visible: Tensor, query_words: Tensor, key_words: Tensor) -> Tensor:
    """Return which words each word can attend to, [..., query words, key words] bool.

    A word is visible to another if one of its subwords is visible to one of the other's. In causal self-attention,
    these are all words up to and including the query's own.

    Args:
        visible: which keys each query can attend to, [..., T, S] bool.
        query_words: index of the word of each query, [..., T] int64.
        key_words: the same for the keys, [..., S].
    """
    return merge_to_words(visible.unsqueeze(-3).float(), query_words, key_words).squeeze(-3) > 0
