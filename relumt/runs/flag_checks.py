"""Checks of fairseq's flags before a run is started: by fairseq's own parsers, limits, and a trial of the model.

What fairseq says is passed on in one line. The trial builds everything that the flags describe on the CPU and computes
the loss of one short sentence, because many values, such as --dropout 2, fail only in the first update.
"""

import argparse
import inspect
import io
import math
import re
import warnings
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib.util import find_spec
from typing import Any, NoReturn

import torch
from torch import Tensor

from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.search.length_penalty import check_length_penalty
from relumt.training_device import CPU_BF16_FLAG, check_translation_in_bf16
from relumt.variant_spec import flag_name

MINIMUM = {
    r"(\w+_)?(embed|output|input)_dim|adaptive_input_factor": 1,
    r"(\w+_)?attention_heads": 1,
    r"(encoder|decoder)_layers": 0,
    r"max_(source|target)_positions|max_tokens(_valid)?|batch_size(_valid)?|update_freq": 1,
    r"(save|validate|log)_interval|required_batch_size_multiple|quant_noise_pq_block_size": 1,
    r"(save|validate)_interval_updates|max_(epoch|update)|num_workers|stop_time_hours|warmup_updates|clip_norm|lr": 0,
    r"beam|nbest|distributed_world_size": 1,
    r"min_len|max_len_[ab]|no_repeat_ngram_size|prefix_size": 0,
}
"""Pattern of names of settings → the smallest value that fairseq can use; for smaller ones it has no message."""

PROBABILITY = re.compile(r"(\w+_)?(dropout|layerdrop)|label_smoothing|quant_noise_pq")
"""Names of settings from 0 to 1."""

UNUSABLE_IN_TRAINING = {
    "no_save": "nothing could be translated with",
    "no_last_checkpoints": "training could not resume",
    "no_save_optimizer_state": "training could not resume",
    "write_checkpoints_asynchronously": "the last checkpoints might be incomplete",
    "checkpoint_suffix": "the checkpoints would not be found",
    "use_sharded_state": "the checkpoints would not be found",
    "reset_optimizer": "resumed training would differ from uninterrupted training",
    "reset_meters": "resumed training would differ from uninterrupted training",
    "reset_dataloader": "resumed training would differ from uninterrupted training",
    "reset_lr_scheduler": "resumed training would differ from uninterrupted training",
    "optimizer_overrides": "resumed training would differ from uninterrupted training",
    "tpu": "relumt trains on GPUs and CPUs",
}
"""Settings of training that the scripts cannot work with → why."""

UNUSABLE_IN_TRANSLATION = {
    "quiet": "no translations would be written",
    "score_reference": "no translations would be written",
    "num_shards": "not every sentence would be translated",
    "shard_id": "not every sentence would be translated",
    "skip_invalid_size_inputs_valid_test": "not every sentence would be translated",
    "checkpoint_suffix": "the checkpoint would not be found",
    "lm_path": "relumt loads no language models",
}
"""Settings of translation that the scripts cannot work with → why."""

TRIED_CRITERIONS = (
    "cross_entropy",
    "fused_label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy",
    "label_smoothed_cross_entropy_with_attention_regularization",
)
"""Criterions whose loss the trial computes; others may need more than a sentence pair."""

MAX_REASON = 300
"""Characters of fairseq's reason that are printed."""

TRACKERS = {"wandb_project": "wandb", "aim_repo": "aim"}
"""Setting that asks for a tracker -> its package, without which fairseq trains and tracks nothing."""

SIGNAL_STATUS = 128
"""Exit statuses above it are those of signals."""


def check_train_flags(arguments: Sequence[str]) -> None:
    """Check the arguments of fairseq-train.

    Raises:
        UserError: fairseq-train would refuse them or fail in the first update, or the scripts cannot work with them.
    """
    options = _import_fairseq_options()
    if CPU_BF16_FLAG in arguments:
        _require_cpu_bf16_criterion(arguments)
    settings = _parse("fairseq-train", options.get_training_parser, arguments, UNUSABLE_IN_TRAINING)
    if not settings.max_tokens and not settings.batch_size:
        _refuse("fairseq-train", "a batch size is missing; give --max-tokens or --batch-size")
    if not (settings.max_update or settings.max_epoch or settings.stop_time_hours or settings.patience > 0):
        _refuse("fairseq-train", "training would never end; give --max-update or --max-epoch")
    for name, package in TRACKERS.items():
        if getattr(settings, name, None) and find_spec(package) is None:
            _refuse("fairseq-train", f"{flag_name(name)} needs {package}; pip install {package}")
    _attempt("fairseq-train", lambda: _try_out(settings))


def check_generate_flags(arguments: Sequence[str]) -> None:
    """Check the arguments of fairseq-generate.

    Raises:
        UserError: fairseq-generate would refuse them, or the scripts cannot work with them.
    """
    options = _import_fairseq_options()
    settings = _parse("fairseq-generate", options.get_generation_parser, arguments, UNUSABLE_IN_TRANSLATION)
    _check_beam_search(settings)
    if settings.bf16:
        check_translation_in_bf16(settings.cpu, settings)
    check_length_penalty(settings)
    _attempt("fairseq-generate", lambda: _convert(settings))


def _check_beam_search(settings: argparse.Namespace) -> None:
    """Raise UserError for values with which fairseq-generate would fail after earlier translations were deleted."""
    from relumt.search.fairseq_hook import check_beam  # imports fairseq

    if settings.nbest > settings.beam:
        _refuse("fairseq-generate", f"--nbest {settings.nbest} is more than --beam {settings.beam}")
    if settings.temperature <= 0:
        _refuse("fairseq-generate", f"--temperature is {settings.temperature}; give a number above 0")
    # With --max-len-a the limit depends on the sources, and --match-source-len ignores both.
    if not (settings.max_len_a or settings.match_source_len) and settings.min_len > settings.max_len_b:
        _refuse("fairseq-generate", f"--min-len {settings.min_len} is more than --max-len-b {settings.max_len_b}")
    check_beam(settings)


def _import_fairseq_options() -> Any:
    """Import fairseq and relumt's models, criterions and tasks; return fairseq's module of options."""
    prepare_fairseq_import()
    from fairseq import options

    import relumt

    relumt.register()
    return options


def _require_cpu_bf16_criterion(arguments: Sequence[str]) -> None:
    """Raise UserError if the criterion is one that computes in fp32 only; fairseq would call the flag unrecognized."""
    from fairseq.criterions import CRITERION_DATACLASS_REGISTRY

    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--criterion", default="cross_entropy")
    criterion = parser.parse_known_args(arguments)[0].criterion
    dest = CPU_BF16_FLAG.removeprefix("--").replace("-", "_")
    suitable = [name for name, config in CRITERION_DATACLASS_REGISTRY.items() if hasattr(config, dest)]
    if criterion not in suitable:
        raise UserError(
            f"PRECISION=bf16 on a CPU ({CPU_BF16_FLAG}) needs --criterion {' or '.join(suitable)}, found {criterion}; "
            "change the criterion, or unset PRECISION to train in fp32"
        )


def _parse(
    command: str,
    get_parser: Callable[[], argparse.ArgumentParser],
    arguments: Sequence[str],
    unusable: dict[str, str],
) -> argparse.Namespace:
    """Parse arguments as fairseq does, and raise UserError for flags and values that it would let pass."""
    from fairseq.options import parse_args_and_arch

    parser = get_parser()
    settings = _attempt(command, lambda: parse_args_and_arch(parser, list(arguments)))
    given: dict[str, str] = {}
    for argument in arguments:
        flag = argument.partition("=")[0]
        action = parser._option_string_actions.get(flag)
        if action is None:
            # A value, or -sVALUE, by which argparse means -s VALUE.
            if re.match("-[a-zA-Z]", flag):
                _refuse(command, f"{flag} is not one of its flags")
            continue
        if action.dest in unusable:
            _refuse(command, f"{flag} cannot be used: {unusable[action.dest]}")
        other = given.setdefault(action.dest, flag)
        if other != flag:
            _refuse(command, f"{other} and {flag} are the same flag; give one of them")
    for name, value in vars(settings).items():
        if name in given:
            _check_value(command, given[name], name, value)
    return settings


def _check_value(command: str, flag: str, name: str, value: Any) -> None:
    """Raise UserError unless each number of a setting is finite and within its limits."""
    for number in value if isinstance(value, list | tuple) else [value]:
        if isinstance(number, bool) or not isinstance(number, int | float):
            continue
        if not math.isfinite(number):
            _refuse(command, f"{flag} is {number}; give a finite number")
        if PROBABILITY.fullmatch(name) and not 0 <= number <= 1:
            _refuse(command, f"{flag} is {number}; give a number from 0 to 1")
        for pattern, minimum in MINIMUM.items():
            if re.fullmatch(pattern, name) and number < minimum:
                _refuse(command, f"{flag} is {number}; give a number from {minimum}")


def _convert(settings: argparse.Namespace) -> Any:
    """Return fairseq's configuration for parsed arguments."""
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    return convert_namespace_to_omegaconf(settings)


def _try_out(settings: argparse.Namespace) -> None:
    """Build task, model and criterion, compute the loss of one short sentence, and take an optimizer's step."""
    from fairseq import tasks
    from fairseq.tasks.translation import TranslationTask

    config = _convert(settings)
    task = tasks.setup_task(config.task)
    model = task.build_model(config.model)
    criterion = task.build_criterion(config.criterion)
    _try_out_optimizer(config)
    if not isinstance(task, TranslationTask):  # its batches have another form
        return
    batch = _short_batch(task)
    try:
        inspect.signature(model.forward).bind(**batch["net_input"])
    except TypeError:  # a non-autoregressive model needs more
        return
    model.train()
    if settings.criterion in TRIED_CRITERIONS:
        criterion(model, batch)
    else:
        model(**batch["net_input"])


def _try_out_optimizer(config: Any) -> None:
    """Update a small parameter, because the optimizer's state of the model would take twice its memory."""
    from fairseq import optim
    from fairseq.optim import lr_scheduler

    parameter = torch.nn.Parameter(torch.zeros(2, 2))
    parameter.grad = torch.ones(2, 2)
    optimizer = optim.build_optimizer(config.optimizer, [parameter])
    lr_scheduler.build_lr_scheduler(config.lr_scheduler, optimizer).step_update(0)
    optimizer.step()


def _short_batch(task: Any) -> dict[str, Any]:
    """Return a batch of one sentence pair, three symbols each, in the form of fairseq's translation datasets."""
    source, target = (_short_sentence(symbols) for symbols in (task.source_dictionary, task.target_dictionary))
    return {
        "id": torch.tensor([0]),
        "nsentences": 1,
        "ntokens": target.numel(),
        "net_input": {
            "src_tokens": source,
            "src_lengths": torch.tensor([source.numel()]),
            "prev_output_tokens": target.roll(1, dims=1),
        },
        "target": target,
    }


def _short_sentence(symbols: Any) -> Tensor:
    """Return the indices of a sentence of three symbols, [1, 3]."""
    return torch.tensor([[symbols.unk(), symbols.unk(), symbols.eos()]])


def _attempt(command: str, action: Callable[[], Any]) -> Any:
    """Call `action`; turn whatever it raises into a UserError with one line."""
    output = io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return action()
    except SystemExit as error:  # argparse and relumt's models print their reason
        if isinstance(error.code, int) and error.code > SIGNAL_STATUS:
            raise
        lines = output.getvalue().strip().split("\n")
        _refuse(command, lines[-1].rpartition(" error: ")[2])
    except Exception as error:  # fairseq has no class of its own for errors in flags
        _refuse(command, str(error) if " " in str(error) else f"{type(error).__name__}: {error}")


def _refuse(command: str, reason: str) -> NoReturn:
    """Raise UserError with the reason on one line."""
    raise UserError(f"{command} refuses these flags: {' '.join(reason.split())[:MAX_REASON]}")
