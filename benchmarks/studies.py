"""What pages of docs/results/ measure of trained models besides `relumt analyze`.

    python benchmarks/studies.py calibration RUN…
    python benchmarks/studies.py by-length RUN… --groups 5
    python benchmarks/studies.py bleu-by-length RUN… --groups 4
    python benchmarks/studies.py filtering RUN… --subset test --noise 0.1

A RUN is the folder of a run, whose last evaluated checkpoint is read, or a checkpoint with --data. Uses a GPU if there
is one.

calibration          how often a model predicts the next token of the references, and with how much confidence. The
                     error is the expected calibration error (Guo et al. 2017, Eq. 3): |accuracy − confidence| in 15
                     equal intervals of confidence, weighted by their numbers of tokens
by-length            by source length: the loss of the references' tokens, and for each site the largest weight of an
                     attention row divided by the sum of its weights, its entropy in nats, how many rows are null, and
                     the share of visible keys whose weight is exactly 0: means over rows (the first two: those that
                     are not null), heads and layers
bleu-by-length       tokenized BLEU of the validation set by the number of source words, with the chosen length penalty
filtering            how well the null rate tells translations from noise, compared with cross-entropy ([RL] §5.2):
                     the probability that a pair with another pair's target gets a higher score (AUC), and the precision
                     of finding a share --noise of such pairs at recalls of 50, 80, 90 and 95%
"""

import argparse
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from timing import print_origin
from torch import Tensor

from relumt.attention import AttentionMask, AttentionOutput, Need
from relumt.attention.metrics.attention_metrics import entropy, is_null_row, normalize, sparsity
from relumt.errors import UserError, exit_on_user_error
from relumt.installation import prepare_fairseq_import
from relumt.plugin.options import SITES
from relumt.process import ArgumentParser, positive_integer, share

MAX_TOKENS = 4096
BATCH_SIZE = 50
INTERVALS = 15
RECALLS = (0.5, 0.8, 0.9, 0.95)
ROW_MEASURES = ("largest share", "entropy", "null rows", "zeros")

Row = list[str]


def load(run: Path, args: argparse.Namespace) -> tuple[Any, Path]:
    """Load a run's model and the subset; return them and the data-bin."""
    from relumt.runs.inference.loaded_model import load_model, with_texts

    loaded, data_bin = load_model(run, with_texts(run, args.data), cpu=False)
    loaded.load_subset(args.subset)
    return loaded, data_bin


def calibration_error(confidence: Tensor, correct: Tensor) -> float:
    """Return the expected calibration error of N predictions.

    Args:
        confidence: probabilities of the predictions, [N], in [0, 1].
        correct: 1 where the prediction is right and 0 elsewhere, [N].
    """
    # The intervals are (0, 1/15], (1/15, 2/15], …
    interval = (confidence * INTERVALS).ceil().long().clamp(min=1) - 1
    surplus = torch.zeros(INTERVALS, dtype=torch.float64).index_add_(0, interval, confidence - correct)
    return surplus.abs().sum().item() / len(confidence)


def predict(loaded: Any, batch: dict[str, Any]) -> Tensor:
    """Return ln p of each target token and of the most probable one, and whether they are the same: [tokens, 3]."""
    with torch.no_grad():
        log_p = loaded.model.get_normalized_probs(loaded.model(**batch["net_input"]), log_probs=True)
    target = batch["target"][..., None]
    best, prediction = log_p.max(-1, keepdim=True)
    columns = torch.cat((log_p.gather(-1, target), best, prediction.eq(target)), -1)  # [B, T, 3]
    return columns[target.ne(loaded.task.target_dictionary.pad()).squeeze(-1)].double().cpu()


def calibration(run: Path, args: argparse.Namespace) -> Iterator[Row]:
    """Yield tokens, bits per token, accuracy, confidence and calibration error over all target tokens."""
    loaded, _ = load(run, args)
    found = [predict(loaded, batch) for batch in loaded.batches(args.subset, MAX_TOKENS)]
    log_p_target, log_p_best, correct = torch.cat(found).unbind(-1)
    confidence = log_p_best.exp().clamp(max=1)
    bits = -log_p_target.mean().item() / math.log(2)
    shares = (correct.mean().item(), confidence.mean().item(), calibration_error(confidence, correct))
    yield [str(len(correct)), f"{bits:.3f}", *(f"{100 * value:.2f}%" for value in shares)]


def by_length(run: Path, args: argparse.Namespace) -> Iterator[Row]:
    """Yield lengths, the mean loss, and the mean of each of ROW_MEASURES at each site, by group of sentences.

    Raises:
        UserError: an attention has no weights, or negative ones.
    """
    from relumt.analysis.collectors import RunningMeans
    from relumt.analysis.units import BatchReader, select_rows
    from relumt.plugin.model.attention import MechanismAttention
    from relumt.plugin.model.hooks import attention_hook
    from relumt.runs.data_bin import find_subwords

    loaded, data_bin = load(run, args)
    reader = BatchReader(loaded.task, find_subwords(data_bin, loaded.task.cfg.target_lang))
    dataset = loaded.task.dataset(args.subset)
    for indices in np.array_split(np.argsort(dataset.src_sizes, kind="stable"), args.groups):
        losses = []
        means: dict[str, dict[str, RunningMeans]] = {site: defaultdict(RunningMeans) for site in SITES}
        for start in range(0, len(indices), BATCH_SIZE):
            batch = loaded.to_device(dataset.collater([dataset[i] for i in indices[start : start + BATCH_SIZE]]))
            tokens = reader.read(batch)

            def collect(
                name: str, attention: MechanismAttention, result: AttentionOutput, mask: AttentionMask,
                tokens: Any = tokens, means: dict[str, dict[str, RunningMeans]] = means,
            ) -> None:  # fmt: skip
                if result.weights is None or attention.mechanism.has_negative_weights:
                    raise UserError(f"{loaded.path}: expected weights that are not negative, {name} has none")
                selected = select_rows(result.weights, mask, *tokens[attention.site], reader.unit)
                rows, is_null = selected.weights, is_null_row(selected.weights)
                values = (
                    normalize(rows).amax(-1), entropy(rows).masked_fill(is_null, math.nan), is_null.float(),
                    sparsity(rows, selected.visible.sum(-1)),
                )  # fmt: skip
                for measure, value in zip(ROW_MEASURES, values, strict=True):
                    means[attention.site][name].add(measure, value)

            with attention_hook(loaded.model, collect, Need.WEIGHTS):
                losses.append(-predict(loaded, batch)[:, 0])
        lengths = dataset.src_sizes[indices]
        cells = (mean_of_layers(means[site].values(), measure) for measure in ROW_MEASURES for site in SITES)
        yield [f"{lengths.min()}–{lengths.max()}", f"{torch.cat(losses).mean():.3f}", *cells]


def mean_of_layers(layers: Iterable[Any], measure: str) -> str:
    """Return the mean of a measure over the layers and heads of a site, "" if no row has it."""
    heads = [found.heads(measure) for found in layers]
    mean = torch.cat(heads).nanmean().item() if heads else math.nan
    return "" if math.isnan(mean) else f"{mean:.3f}"


def bleu_by_length(run: Path, args: argparse.Namespace) -> Iterator[Row]:
    """Yield source words, sentences, BLEU, brevity penalty and sacreBLEU's signature, by group of sentences.

    Raises:
        UserError: no penalty was chosen, or the output of fairseq-generate is missing or damaged.
    """
    from sacrebleu.metrics import BLEU

    from relumt.runs.data_bin import open_data_bin
    from relumt.runs.evaluation import SEARCH_FOLDER, translations_by_penalty
    from relumt.runs.record import find_data_bin, load_record
    from relumt.runs.scores import generate_output
    from relumt.runs.translations import align_translations, read_sources

    record = load_record(run)
    search = record.length_penalty_search
    if search is None or search.choice is None:
        raise UserError(
            f"{run}: expected a run whose --lenpen was chosen on the validation set, found none; run "
            "scripts/evaluate.sh with a dataset that has length_penalties"
        )
    data_bin = open_data_bin(find_data_bin(run, record))
    output = translations_by_penalty(run, search.setup)(float(search.choice.chosen))
    translations = align_translations(output, data_bin, search.setup.subset)
    words = [len(source.split()) for source in read_sources(generate_output(run / SEARCH_FOLDER, search.setup))]
    metric = BLEU(tokenize="none", lowercase=data_bin.lowercased, force=True)
    quantiles = np.quantile(words, np.linspace(0, 1, args.groups + 1)).astype(int)
    edges = np.unique([*quantiles[:-1], quantiles[-1] + 1])  # sentences of one length are in one group
    for low, high in pairwise(edges):
        indices = [index for index, count in enumerate(words) if low <= count < high]
        hypotheses = [translations.tokenized_hypotheses[index] for index in indices]
        references = [translations.tokenized_references[index] for index in indices]
        score = metric.corpus_score(hypotheses, [references])
        scores = f"{score.score:.2f}", f"{score.bp:.3f}", str(metric.get_signature())
        yield [f"{low}–{high - 1}", str(len(indices)), *scores]


def filtering(run: Path, args: argparse.Namespace) -> Iterator[Row]:
    """Yield the score, pairs, the share of wrong ones, AUC and the precisions, for both scores.

    Raises:
        UserError: no pair has both scores.
    """
    from sklearn.metrics import precision_recall_curve, roc_auc_score

    from relumt.analysis.filter import score_pairs

    loaded, _ = load(run, args)
    scores_by_subset = []
    for subset in (args.subset, loaded.shuffle_targets(args.subset)):
        dataset = loaded.task.dataset(subset)
        pairs = [(pair["source"], pair["target"]) for pair in map(dataset.__getitem__, range(len(dataset)))]
        scores_by_subset.append(score_pairs(loaded, pairs, MAX_TOKENS))
    both = zip(*scores_by_subset, strict=True)
    measured = [pair for pair in both if not any(math.isnan(x) for score in pair for x in score)]
    if not measured:
        raise UserError(f"{run}: no pair has both a null rate and a cross-entropy; give a model with row stats")
    right, wrong = zip(*measured, strict=True)
    noisy = np.random.default_rng(1).random(len(right)) < args.noise
    for name in ("null_rate", "cross_entropy"):
        own, swapped = (np.array([getattr(score, name) for score in scores]) for scores in (right, wrong))
        auc = roc_auc_score([0] * len(own) + [1] * len(swapped), np.concatenate([own, swapped]))
        precision, recall, _ = precision_recall_curve(noisy, np.where(noisy, swapped, own))
        precisions = (f"{precision[recall >= limit].max():.3f}" for limit in RECALLS)
        yield [name, str(len(own)), f"{noisy.mean():.3f}", f"{auc:.3f}", *precisions]


STUDIES: dict[str, tuple[Callable[[Path, argparse.Namespace], Iterator[Row]], Row]] = {
    "calibration": (calibration, ["tokens", "bits per token", "accuracy", "confidence", "error"]),
    "by-length": (
        by_length,
        ["source tokens", "loss", *(f"{measure}, {site}" for measure in ROW_MEASURES for site in SITES)],
    ),
    "bleu-by-length": (bleu_by_length, ["source words", "sentences", "BLEU", "brevity penalty", "signature"]),
    "filtering": (
        filtering,
        ["score", "pairs", "wrong pairs", "AUC", *(f"precision at recall {recall}" for recall in RECALLS)],
    ),
}
"""Study → its function and the header of its table."""


def main() -> None:
    """Study all runs, and print a table."""
    parser = ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN")
    parser.add_argument("--data", type=Path, help="data-bin (default: the one that the run was trained on)")
    parser.add_argument("--subset", default="valid", help="(default: %(default)s)")
    parser.add_argument("--groups", type=positive_integer, default=4, help="of sentences (default: %(default)s)")
    parser.add_argument("--noise", type=share, default=0.1, help="share of wrong pairs (default: %(default)s)")
    args = parser.parse_args()
    prepare_fairseq_import()
    study, header = STUDIES[args.study]
    print("| " + " | ".join(["run", *header]) + " |\n" + "|---" * (len(header) + 1) + "|")
    for run in args.runs:
        for row in study(run, args):
            print("| " + " | ".join([str(run), *row]) + " |", flush=True)
    print_origin()


if __name__ == "__main__":
    with exit_on_user_error():
        main()
