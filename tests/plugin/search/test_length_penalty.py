"""--length-penalty: the divisors, the order of hypotheses against an exhaustive search, and what is refused."""

from argparse import Namespace
from itertools import product
from math import inf

import pytest
import torch
from fairseq import options
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.sequence_generator import SequenceGenerator
from fairseq_cli import generate

from relumt.errors import UserError
from relumt.plugin.search.generator import BeamSearchGenerator
from relumt.plugin.search.length_penalty import LENGTH_PENALTIES, check_length_penalty
from tests.plugin.model.build import dictionary, sample, task, write_checkpoint, write_data_bin
from tests.plugin.search.test_generator import LENGTHS, SEEDS, WORDS, build_model, translate

MAX_LEN = 3
"""Words of a translation in the exhaustive search."""

POSSIBLE = ("w0", "w1")
"""The words that a translation may consist of there."""

NUM_TRANSLATIONS = sum(len(POSSIBLE) ** length for length in range(1, MAX_LEN + 1))
"""Translations of 1 to 3 words. A beam of this size finds all: no step has more candidates that are possible."""

EXHAUSTIVE = {
    "beam_size": NUM_TRANSLATIONS,
    "max_len_b": MAX_LEN,
    "unk_penalty": inf,
    "tokens_to_suppress": ["<s>", *(word for word in dictionary(WORDS).symbols[4:] if word not in POSSIBLE)],
}

PATHS = {"own search": {}, "fairseq's search": {"no_repeat_ngram_size": MAX_LEN + 2}}
"""The second blocks n-grams that are longer than any translation, and is left to fairseq."""


def gnmt_ranking(model, batch, power):
    """Return all translations of each sentence and their scores, best first, by the equation:

    log P(y | x) / ((5 + |y|) / 6)^power, |y| with the end-of-sentence symbol (Wu et al. 2016).
    """
    symbols = dictionary(WORDS)
    words = [symbols.index(word) for word in POSSIBLE]
    translations = [
        [*chosen, symbols.eos()] for length in range(1, MAX_LEN + 1) for chosen in product(words, repeat=length)
    ]
    rankings = []
    for tokens, length in zip(batch["net_input"]["src_tokens"], batch["net_input"]["src_lengths"], strict=True):
        scores = {}
        for translation in translations:
            previous = torch.tensor([[symbols.eos(), *translation[:-1]]])
            with torch.no_grad():
                logits, _ = model(tokens[-length:].unsqueeze(0), length.unsqueeze(0), previous)
            log_probs = logits[0].double().log_softmax(-1)
            total = sum(log_probs[step, token].item() for step, token in enumerate(translation))
            scores[tuple(translation)] = total / ((5 + len(translation)) / 6) ** power
        rankings.append(sorted(scores.items(), key=lambda item: -item[1]))
    return rankings


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("power", [0.0, 0.6, 3.0])
def test_the_best_of_all_translations_are_found(path, power):
    model, batch = build_model(1).double(), sample(LENGTHS)  # float32 is too coarse on some CPUs
    options = EXHAUSTIVE | PATHS[path] | {"len_penalty": power, "length_penalty": "gnmt"}
    found = translate(BeamSearchGenerator, model, batch, **options)
    for hypotheses, ranking in zip(found, gnmt_ranking(model, batch, power), strict=True):
        assert len(hypotheses) == len(ranking) == NUM_TRANSLATIONS
        for hypothesis, (tokens, score) in zip(hypotheses, ranking, strict=True):
            assert tuple(hypothesis["tokens"].tolist()) == tokens
            assert hypothesis["score"].item() == pytest.approx(score, abs=1e-5)


@pytest.mark.parametrize("penalty", LENGTH_PENALTIES)
@pytest.mark.parametrize("path", PATHS)
def test_one_search_finds_the_hypotheses_for_every_power(path, penalty):
    """`relumt.runs.translations` relies on it."""
    divisor, best = LENGTH_PENALTIES[penalty], {}
    for seed in SEEDS:
        model, batch = build_model(seed), sample(LENGTHS, seed)
        options = PATHS[path] | {"length_penalty": penalty}
        lists = translate(BeamSearchGenerator, model, batch, len_penalty=0.0, **options)
        for power in (-1.0, 0.6, 2.2):
            expected = translate(BeamSearchGenerator, model, batch, len_penalty=power, **options)
            best[seed, power] = [
                max(found, key=lambda h, power=power: h["score"] / divisor(len(h["tokens"]), power)) for found in lists
            ]
            for hypothesis, hypotheses in zip(best[seed, power], expected, strict=True):
                assert hypothesis["tokens"].tolist() == hypotheses[0]["tokens"].tolist()
    lengths = {power: sum(len(h["tokens"]) for seed in SEEDS for h in best[seed, power]) for power in (-1.0, 2.2)}
    assert lengths[-1.0] < lengths[2.2]  # otherwise all powers would choose the same hypotheses


REFUSED = {
    "wu": ({"length_penalty": "wu"}, "unknown --length-penalty 'wu'; choose from length, gnmt"),
    "unnormalized": ({"unnormalized": True}, "has no effect with --unnormalized"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_apply_is_refused(name):
    settings, message = REFUSED[name]
    with pytest.raises(UserError, match=message):
        check_length_penalty(Namespace(**({"length_penalty": "gnmt"} | settings)))


def test_another_beam_search_is_refused():
    with pytest.raises(UserError, match="--length-penalty gnmt needs relumt's beam search"):
        task(WORDS).build_generator([build_model(1)], Namespace(length_penalty="gnmt"), SequenceGenerator)


def test_fairseq_generate_takes_the_flag_and_translates_every_sentence(tmp_path, capsys):
    """fairseq itself skips a last batch whose size is no multiple of 8."""
    data = write_data_bin(tmp_path / "bin", [(3, 2)] * 9)
    path = write_checkpoint(tmp_path / "run", "--attention", "relu")
    words = [str(data), "--path", str(path), "--cpu", "--max-len-b", "6", "--length-penalty", "gnmt", "--lenpen", "0.6"]
    settings = options.parse_args_and_arch(options.get_generation_parser(), words)
    generate.main(convert_namespace_to_omegaconf(settings))
    output = [line.split("\t") for line in capsys.readouterr().out.splitlines() if line[:2] in ("H-", "P-")]
    scores = [float(score) for name, score, *_ in output if name[0] == "H"]
    positional = [[float(score) for score in scores.split()] for name, scores in (f for f in output if f[0][0] == "P")]
    assert len(scores) == len(positional) == 9
    for score, tokens in zip(scores, positional, strict=True):
        assert score == pytest.approx(sum(tokens) / ((5 + len(tokens)) / 6) ** 0.6, abs=1e-2)
