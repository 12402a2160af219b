"""fairseq's `SequenceGenerator` with a faster beam search for the options that translation needs.

Shapes: B sentences that are not finished, V types in the vocabulary, N rows: one hypothesis of a sentence each, beam
consecutive rows per sentence.

The hypotheses are fairseq's, and their scores differ by rounding only. What is saved, compared with fairseq:

- The first step, in which all hypotheses of a sentence are still equal, computes one of them.
- The encoder's output is not copied for each hypothesis, nor reordered: the decoder's caches replace it.
- The log-probabilities [N, V] are computed in place and read three times, instead of some ten.

Everything else (sampling, constraints, prefixes, ensembles, language models, ...) is left to fairseq.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.search import BeamSearch
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

from relumt.errors import AttemptFailedError
from relumt.plugin.model.attention import MechanismAttention
from relumt.plugin.model.layers import MechanismDecoder
from relumt.plugin.search.length_penalty import FAIRSEQ_PENALTY, LENGTH_PENALTIES

Hypothesis = dict[str, Tensor]
"""fairseq's: tokens [length], score [], positional_scores [length], and an empty attention and alignment."""


@dataclass
class Beam:
    """The unfinished hypotheses.

    Attributes:
        sentences: [B] position of each sentence in the batch.
        tokens: [N, step + 1], each begins with the first token that the decoder reads.
        scores: [N, step] log-probability of each prefix, without the first token.
    """

    sentences: Tensor
    tokens: Tensor
    scores: Tensor


Candidates = Sequence[Tensor]
"""The best continuations of each sentence, best first, [B, 2·beam]: the log-probability of the whole hypothesis, the
token that continues it, and the row in `Beam` of the hypothesis that is continued."""


class BeamSearchGenerator(SequenceGenerator):
    """Replaces fairseq's `SequenceGenerator`; a search with options that it does not support is fairseq's.

    Args:
        arguments, options: fairseq's.
        length_penalty: key of LENGTH_PENALTIES.
    """

    def __init__(self, *arguments: Any, length_penalty: str = FAIRSEQ_PENALTY, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.length_penalty = length_penalty

    def _generate(
        self,
        sample: dict[str, Any],
        prefix_tokens: Tensor | None = None,
        constraints: Tensor | None = None,
        bos_token: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the hypotheses of each sentence in a batch, best first."""
        in_bf16 = any(getattr(model, "translates_in_bf16", False) for model in self.model.models)
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bf16):
            if prefix_tokens is None and constraints is None and self.supports(sample["net_input"]):
                return self._search(sample["net_input"], self.eos if bos_token is None else bos_token)
            return self._apply_length_penalty(super()._generate(sample, prefix_tokens, constraints, bos_token))

    def _apply_length_penalty(self, found: list[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """Replace the scores that fairseq's search has divided by len^p, and sort the hypotheses by the new ones."""
        if self.length_penalty == FAIRSEQ_PENALTY or not self.normalize_scores:
            return found
        for hypothesis in chain(*found):
            length = len(hypothesis["tokens"])
            hypothesis["score"] = hypothesis["score"] * length**self.len_penalty / self._divisor(length)
        return [best_first(hypotheses) for hypotheses in found]

    def _divisor(self, length: int) -> float:
        """Return what the log-probability of a hypothesis is divided by.

        Args:
            length: number of its tokens with the end-of-sentence symbol.
        """
        return LENGTH_PENALTIES[self.length_penalty](length, self.len_penalty) if self.normalize_scores else 1

    def supports(self, net_input: dict[str, Any]) -> bool:
        """Return whether `_search` finds the hypotheses that fairseq's search would find.

        A GPU is left to fairseq, because nobody measured there.
        """
        models, source = self.model.models, net_input.get("src_tokens")
        return (
            len(models) == 1
            and isinstance(getattr(models[0], "decoder", None), MechanismDecoder)
            and models[0].decoder.adaptive_softmax is None
            and models[0].decoder.can_expand_incremental_state()
            and type(self.search) is BeamSearch
            and self.lm_model is None
            and self.repeat_ngram_blocker is None
            and not self.match_source_len
            and 2 * self.beam_size < self.vocab_size
            and source is not None
            and source.device.type == "cpu"
            and self.min_len <= self._max_len(source)
            and not any(map(makes_rows_differ, models[0].modules()))
        )

    def _max_len(self, source: Tensor) -> int:
        """Return the largest number of tokens of a hypothesis, without the end-of-sentence symbol."""
        return min(int(self.max_len_a * source.shape[1] + self.max_len_b), self.max_len - 1)

    def _search(self, net_input: dict[str, Any], first_token: int) -> list[list[Hypothesis]]:
        """Search a batch; fairseq's `generate` turns off gradients.

        Raises:
            AttemptFailedError: the model's probabilities are not finite.
        """
        model, source, beam_size = self.model.single_model, net_input["src_tokens"], self.beam_size
        max_len, batch_size = self._max_len(source), len(source)
        encoder_out, state = model.encoder.forward_torchscript(net_input), {}  # type: ignore[var-annotated]
        finished: list[list[Hypothesis]] = [[] for _ in range(batch_size)]
        beam = Beam(torch.arange(batch_size), torch.full((batch_size, 1), first_token), torch.empty(batch_size, 0))
        for step in range(max_len + 1):
            log_probs = self._log_probs(beam.tokens, encoder_out, state, step, max_len)
            candidates: Candidates = self._candidates(log_probs, beam)
            if step == 0:
                model.decoder.expand_incremental_state(state, beam_size)
                beam.tokens, beam.scores = (x.repeat_interleave(beam_size, 0) for x in (beam.tokens, beam.scores))
            scores, tokens, _ = candidates
            is_end = tokens.eq(self.eos) & scores.ne(-torch.inf)
            # Only the best `beam_size` candidates may end, so that worse ones do not end a search early.
            if is_unfinished := self._finish(beam, candidates, is_end[:, :beam_size], finished, step == max_len):
                if not any(is_unfinished):
                    break
                kept = torch.tensor(is_unfinished).nonzero().squeeze(1)
                *candidates, is_end, beam.sentences = (x[kept] for x in (*candidates, is_end, beam.sentences))
            self._continue(beam, candidates, is_end, state)
        if not all(finished):
            raise AttemptFailedError(
                f"{finished.count([])} of {batch_size} sentences have no translation, because the model's "
                "probabilities are not finite; use another checkpoint"
            )
        return [best_first(hypotheses) for hypotheses in finished]

    def _log_probs(self, tokens: Tensor, encoder_out: Any, state: dict[str, Any], step: int, max_len: int) -> Tensor:
        """Return the log-probability of each next token [N, V], with -∞ for tokens that must not come next."""
        decoder = self.model.single_model.decoder
        features, _ = decoder(tokens, encoder_out=encoder_out, incremental_state=state, features_only=True)
        logits = decoder.output_layer(features)[:, -1].float()  # [N, 1, V] -> [N, V]
        if self.temperature != 1:
            logits /= self.temperature
        torch.log_softmax(logits, -1, out=logits)  # in place: a new tensor would cost as much as the softmax
        if logits[:, 0].isnan().any():  # a row is NaN as a whole or not at all
            logits.nan_to_num_(nan=-torch.inf, neginf=-torch.inf)
        logits[:, self.pad] = -torch.inf
        logits[:, self.unk] -= self.unk_penalty
        if step == max_len:
            end = logits[:, self.eos].clone()
            logits.fill_(-torch.inf)[:, self.eos] = end
        elif step < self.min_len:
            logits[:, self.eos] = -torch.inf
        if self.token_indices_to_suppress is not None:
            logits[:, self.token_indices_to_suppress] = -torch.inf
        return logits

    def _candidates(self, log_probs: Tensor, beam: Beam) -> Candidates:
        """Return the best continuations; log_probs [N, V], [B, V] in the first step, is overwritten."""
        totals = log_probs.add_(beam.scores[:, -1:]) if beam.scores.shape[1] else log_probs
        # [N, V] -> [B, beam·V]
        scores, indices = topk_by_chunks(totals.view(len(beam.sentences), -1), 2 * self.beam_size)
        first_rows = torch.arange(0, len(scores) * self.beam_size, self.beam_size).unsqueeze(1)
        return scores, indices % self.vocab_size, first_rows + indices // self.vocab_size

    def _finish(
        self, beam: Beam, candidates: Candidates, is_end: Tensor, finished: list[list[Hypothesis]], is_last_step: bool
    ) -> list[bool]:
        """Add the candidates that end, is_end [B, beam], to `finished`.

        Returns:
            Whether each sentence has less than `beam_size` hypotheses, unless this is the last step; empty if no
            sentence has enough.
        """
        positions, ranks = is_end.nonzero(as_tuple=True)
        if not is_last_step and not len(positions):
            return []
        candidate_scores, _, candidate_rows = (x[positions, ranks] for x in candidates)
        scores = torch.cat((beam.scores[candidate_rows], candidate_scores.unsqueeze(1)), dim=1)
        tokens = torch.nn.functional.pad(beam.tokens[candidate_rows, 1:], (0, 1), value=self.eos)
        totals = scores[:, -1] / self._divisor(tokens.shape[1])
        token_scores = torch.cat((scores[:, :1], scores.diff()), dim=1)
        for i, sentence in enumerate(beam.sentences[positions].tolist()):
            if len(finished[sentence]) < self.beam_size:
                unused = {"attention": torch.empty(0), "alignment": torch.empty(0)}  # fairseq's callers expect them
                found = {"tokens": tokens[i], "score": totals[i], "positional_scores": token_scores[i]}
                finished[sentence].append(found | unused)
        is_unfinished = [
            not is_last_step and len(finished[sentence]) < self.beam_size for sentence in beam.sentences.tolist()
        ]
        return [] if all(is_unfinished) else is_unfinished

    def _continue(self, beam: Beam, candidates: Candidates, is_end: Tensor, state: dict[str, Any]) -> None:
        """Continue the best candidates that do not end."""
        ranks = torch.arange(is_end.shape[1]) + is_end * is_end.shape[1]  # those that end come last
        chosen = ranks.topk(self.beam_size, largest=False).indices
        scores, tokens, rows = (x.gather(1, chosen).flatten() for x in candidates)
        beam.tokens = torch.cat((beam.tokens[rows], tokens.unsqueeze(1)), dim=1)
        beam.scores = torch.cat((beam.scores[rows], scores.unsqueeze(1)), dim=1)
        self.model.single_model.decoder.reorder_incremental_state_scripting(state, rows)


def best_first(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """Sort the hypotheses of a sentence by their scores."""
    return sorted(hypotheses, key=lambda hypothesis: -float(hypothesis["score"]))


def makes_rows_differ(module: torch.nn.Module) -> bool:
    """Return whether a module draws dropout or needs a batch entry for each hypothesis."""
    if isinstance(module, MechanismAttention):
        return module.training or bool(module.hooks) or module.weights_for_alignment or module.mechanism.retain_dropout
    return isinstance(module, FairseqDropout) and (module.training or module.apply_during_inference)


CHUNK = 64
"""Elements whose maximum decides whether any of them can be among the largest."""


def topk_by_chunks(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest elements of each row of x [R, N] and their indices, [R, k], in descending order.

    The same as `x.topk(k)` except for the order of equal elements and the indices of elements of -∞. PyTorch's CPU
    version copies each row into a heap of pairs. This one only takes the maximum of each chunk: the k chunks with the
    largest maxima contain the k largest elements, because any other chunk has at least k elements, one in each of
    these, that are no smaller.
    """
    N = x.shape[1]
    num_whole = N // CHUNK
    if num_whole <= k:
        largest, indices = x.topk(k)
        return largest, indices
    maxima = x[:, : num_whole * CHUNK].unflatten(1, (num_whole, CHUNK)).amax(-1)  # [R, N/CHUNK]
    if N % CHUNK:
        maxima = torch.cat((maxima, x[:, num_whole * CHUNK :].amax(-1, keepdim=True)), dim=1)
    chunks = maxima.topk(k).indices
    # [R, k, 1] + [CHUNK] -> [R, k·CHUNK]
    columns = (chunks.unsqueeze(-1) * CHUNK + torch.arange(CHUNK, device=x.device)).flatten(1)
    is_outside = columns >= N
    columns.clamp_(max=N - 1)
    largest, positions = x.gather(1, columns).masked_fill_(is_outside, -torch.inf).topk(k)
    return largest, columns.gather(1, positions)
