"""Tiny models and random sentences for tests, built as fairseq's command line builds them."""

import copy
from argparse import Namespace
from functools import cache
from pathlib import Path

import torch
from fairseq import options
from fairseq.data import Dictionary, LanguagePairDataset
from fairseq.data.indexed_dataset import make_builder
from fairseq.dataclass.utils import convert_namespace_to_omegaconf
from fairseq.tasks.translation import TranslationConfig, TranslationTask
from fairseq.trainer import Trainer

import relumt

relumt.register()

SMALL = """--encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-layers 2 --encoder-attention-heads 2
--decoder-layers 2 --decoder-attention-heads 2 --dropout 0 --attention-dropout 0""".split()


def dictionary(words: int = 20) -> Dictionary:
    symbols = Dictionary()
    for word in range(words):
        symbols.add_symbol(f"w{word}")
    return symbols


def task(words: int = 20) -> TranslationTask:
    config = TranslationConfig(data="nowhere", source_lang="de", target_lang="en")
    return TranslationTask(config, dictionary(words), dictionary(words))


def write_data_bin(folder: Path, lengths: list[tuple[int, int]], subset: str = "test") -> Path:
    """Write a data-bin of random sentences with these (source, target) lengths and the vocabulary of `task`."""
    folder.mkdir(parents=True, exist_ok=True)
    batch, symbols = sample(lengths), dictionary()
    order = batch["id"].tolist()
    for language, tokens in (("de", batch["net_input"]["src_tokens"]), ("en", batch["target"])):
        symbols.save(str(folder / f"dict.{language}.txt"))
        path = str(folder / f"{subset}.de-en.{language}")
        builder = make_builder(f"{path}.bin", "mmap", len(symbols))
        for _, row in sorted(zip(order, tokens, strict=True), key=lambda pair: pair[0]):
            builder.add_item(row[row.ne(symbols.pad())])
        builder.finalize(f"{path}.idx")
    return folder


def write_checkpoint(folder: Path, *flags: str) -> Path:
    """Write a checkpoint of an untrained `mechanism_transformer` with `flags`; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    trained = trainer(folder, "--arch", "mechanism_transformer", "--source-lang", "de", "--target-lang", "en", *flags)
    trained.consolidate_optimizer()
    path = folder / "checkpoint_best.pt"
    trained.save_checkpoint(str(path), {"train_iterator": {"epoch": 1}})
    return path


@cache
def parsed_arguments(flags: tuple[str, ...]) -> Namespace:
    return options.parse_args_and_arch(options.get_training_parser(), ["nowhere", *SMALL, *flags])


def arguments(*flags: str) -> Namespace:
    return copy.deepcopy(parsed_arguments(flags))


def build(arch: str, *flags: str, words: int = 20, seed: int = 1):
    """Build a model of `arch` with `flags` and a vocabulary of `words` words."""
    # fairseq passes these architectures a namespace; making a hydra config first would take ten times as long.
    args = arguments("--arch", arch, *flags)
    torch.manual_seed(seed)
    return task(words).build_model(args)


def trainer(save_dir: Path, *flags: str) -> Trainer:
    """Build fairseq's trainer for a new model with `flags`, on the CPU and at the beginning of its first epoch."""
    common = ("--cpu", "--optimizer", "adam", "--save-dir", str(save_dir))
    config = convert_namespace_to_omegaconf(arguments(*common, *flags))
    translation = task()
    model = translation.build_model(config.model)
    built = Trainer(config, translation, model, translation.build_criterion(config.criterion))
    built.begin_epoch(1)
    return built


def sample(lengths: list[tuple[int, int]], seed: int = 0) -> dict:
    """Return a batch of random sentences with these (source, target) lengths, as fairseq collates it."""
    symbols = dictionary()
    seeded = torch.Generator().manual_seed(seed)

    def sentence(length: int) -> torch.Tensor:
        words = torch.randint(symbols.nspecial, len(symbols), (length - 1,), generator=seeded)
        return torch.cat([words, torch.tensor([symbols.eos()])])

    source = [sentence(s) for s, _ in lengths]
    target = [sentence(t) for _, t in lengths]
    dataset = LanguagePairDataset(
        source, [len(x) for x in source], symbols, target, [len(x) for x in target], symbols, shuffle=False
    )
    return dataset.collater([dataset[i] for i in range(len(lengths))])
