"""The datasets of the papers against the settings that the papers give, `relumt/papers.json`."""

import re
from pathlib import Path

import pytest

from relumt.printed_results import papers
from relumt.runs.dataset_config import require_dataset

DATASETS = Path(__file__).resolve().parents[2] / "configs" / "datasets"

RF, RL = (papers()[paper]["settings"] for paper in ("RF", "RL"))
RL_TRAINING = RL | {"steps": None, "tokens_per_batch": RL["target_tokens_per_batch"]}

SETTINGS = {
    "iwslt14_de_en": RF["iwslt14_de_en"] | RF["training"],
    "wmt14_en_de": RF["wmt14_en_de"] | RF["training"],
    **{f"europarl7_en_de_{length}": RF["training"] for length in papers()["RF"]["table6"]["columns"]},
    **dict.fromkeys(
        "wmt14_en_de_rela wmt14_en_de_aligned wmt14_en_fr wmt16_ro_en wmt18_en_fi wmt18_zh_en".split(), RL_TRAINING
    ),
}
"""Dataset → what its paper gives."""

SIZES = {"layers": "layers", "heads": "attention-heads", "model": "embed-dim", "ffn": "ffn-embed-dim"}
"""Name of a size in papers.json → the end of the flags --encoder-… and --decoder-…"""

WITHOUT_EFFECT_ON_SCORES = {"--task", "--batch-size"}


def given_flags(settings):
    """Return the flags that a paper gives, with their values as numbers."""
    flags = {
        f"--{side}-{flag}": settings[name]
        for name, flag in SIZES.items()
        for side in ("encoder", "decoder")
        if name in settings
    }
    assert settings["dropout"] == "0.1 on residuals and attention weights"
    flags |= {"--dropout": 0.1, "--attention-dropout": 0.1, "--label-smoothing": settings["label_smoothing"]}
    flags |= {"--max-tokens": settings["tokens_per_batch"]}
    flags |= {"--max-update": settings["steps"]} if settings["steps"] else {}
    flags |= {"--warmup-updates": warmup_updates(settings)}
    names = {"--beam": "beam", "--lenpen": "length_penalty"}
    return flags | {flag: settings[name] for flag, name in names.items() if name in settings}


def warmup_updates(settings):
    thousands = re.fullmatch(r"inverse square root, (\d+)K warm-up", settings["schedule"])
    return 1000 * int(thousands[1])


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_are_those_of_the_paper(name):
    config, settings = require_dataset(name, DATASETS), SETTINGS[name]
    flags = config.train | config.generate
    for flag, value in given_flags(settings).items():
        assert [float(found) for found in flags[flag]] == [value], flag
    assert settings["optimizer"] == "Adam (0.9, 0.98)"
    assert (flags["--optimizer"], flags["--adam-betas"]) == (["adam"], ["(0.9,0.98)"])
    assert flags["--lr-scheduler"] == ["inverse_sqrt"]
    assert config.average_checkpoints == settings.get("average_last_checkpoints", 0)
    # [RL]'s code has ((5 + len)/6)^0.6, github.com/bzhangGo/zero, search.py; nobody knows [RF]'s.
    assert flags.get("--length-penalty") == (["gnmt"] if settings is RL_TRAINING else None)
    assert config.average_checkpoints <= int(flags.get("--keep-interval-updates", ["0"])[0])


@pytest.mark.parametrize("name", SETTINGS)
def test_the_learning_rate_is_the_peak_of_vaswanis_schedule(name):
    """d^-0.5 · min(t^-0.5, t · warmup^-1.5) is largest at t = warmup: (d · warmup)^-0.5."""
    model = SETTINGS[name].get("model", RF["wmt14_en_de"]["model"])
    warmup = warmup_updates(SETTINGS[name])
    peak = max(model**-0.5 * min(t**-0.5, t * warmup**-1.5) for t in range(1, 2 * warmup))
    (rate,) = require_dataset(name, DATASETS).train["--lr"]
    assert rate == f"{peak:.0e}".replace("e-0", "e-") == "7e-4"


@pytest.mark.parametrize("name", sorted({re.sub(r"_\d+$", "", name) for name in SETTINGS}))
def test_what_the_paper_does_not_give_is_marked(name):
    """A flag is one that the paper gives, has no effect on scores, or has a comment on its line."""
    settings = next(found for dataset, found in SETTINGS.items() if dataset.startswith(name))
    given = {"--optimizer", "--adam-betas", "--lr-scheduler", *given_flags(settings), *WITHOUT_EFFECT_ON_SCORES}
    lines = (DATASETS / f"{name}.toml").read_text(encoding="utf-8").splitlines()
    unmarked = []
    for number, line in enumerate(lines):
        flags, _, comment = line.partition("#")
        comment += lines[number - 1] if line.startswith("generate") else ""
        names = {flag for flag in re.findall(r"--[a-z][a-z-]*", flags) if flag not in given}
        if names and "not given" not in comment:
            unmarked.append(line)
    assert not unmarked
