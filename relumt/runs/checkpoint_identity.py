"""Whether a checkpoint belongs to a run: a file in a run's folder may have been trained with other settings.

What is compared is what fairseq stores in a checkpoint and run.json determines: architecture, mechanisms, feed-forward
variants, criterion, seed and vocabulary. Paths are not compared, so a run can be moved.
"""

import re
from collections.abc import Mapping
from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

from relumt.errors import UserError
from relumt.fairseq_version import prepare_fairseq_import
from relumt.runs.data_bin import DataBin
from relumt.runs.record import BACKUP, RUN_RECORD, RunRecord

INCIDENTAL = (
    "_name vocabulary_fingerprint min_params_to_wrap checkpoint_activations offload_activations cpu_bf16".split()
)
"""Settings that do not change what a model computes, or that the flags in run.json do not determine.

The precision of training is among them: run.json has it in the environment, and resuming checks it.
"""

FILLED_IN = ("max_source_positions", "max_target_positions", "seed")
"""Settings that fairseq fills in later if they are None, or that a checkpoint may lack."""

MAX_NAMED = 3
"""How many differences an error message names."""


def refuse_foreign_checkpoint(path: Path, checkpoint: Mapping[str, Any], record: RunRecord) -> None:
    """Raise UserError if a checkpoint was not trained by the run of `record`.

    Differences in settings whose change somebody accepted with ACCEPT_MIXED=1 do not count.

    Args:
        path: path of the checkpoint, for error messages.
        checkpoint: its contents, as `load_checkpoint_safely` returns them.
        record: record of the run.
    """
    found, expected = describe_checkpoint(checkpoint, path), describe_run(record)
    accepted = _accepted_settings(record)
    differences = [
        f"{name} is {value} (run.json: {expected[name]})"
        for name, value in found.items()
        if name in expected and expected[name] != value and not _is_accepted(name, accepted)
    ]
    if differences:
        more = f"; and {len(differences) - MAX_NAMED} more" if len(differences) > MAX_NAMED else ""
        raise UserError(
            f"{path} is not a checkpoint of the run {record.name}: {'; '.join(differences[:MAX_NAMED])}{more}; put "
            "back the run's own checkpoint, or set RUNS to another folder to train again"
        )


def describe_checkpoint(checkpoint: Mapping[str, Any], path: Path | str) -> dict[str, Any]:
    """Return the settings of a checkpoint that tell one run from another.

    Raises:
        UserError: the checkpoint has settings that are not allowed.
    """
    from relumt.checkpoints.loading import fairseq_config, training_seed  # imports PyTorch, which takes seconds
    from relumt.options import VARIANT_CHOICES

    config = fairseq_config(checkpoint, path)
    model, criterion = config["model"], config["criterion"] or {}
    settings = dict(vars(model))
    if settings.get("share_all_embeddings"):
        settings["share_decoder_input_output_embed"] = True  # fairseq sets this when it builds the model
    for choice in VARIANT_CHOICES:
        settings |= {f"{choice.name}_{site}": choice.name_at(model, site) for site in choice.sites}
        settings.pop(choice.name, None)
    settings |= {("criterion" if name == "_name" else name): value for name, value in criterion.items()}
    settings["seed"] = training_seed(checkpoint)
    unknown = {*INCIDENTAL, *(name for name in FILLED_IN if settings.get(name) is None)}
    return {name: value for name, value in settings.items() if name not in unknown}


def describe_run(record: RunRecord) -> dict[str, Any]:
    """Return the settings that a checkpoint of a run has, from the flags in its record.

    Raises:
        UserError: fairseq does not accept the flags.
    """
    prepare_fairseq_import()
    from fairseq import options

    import relumt
    from relumt.options import VARIANT_CHOICES

    relumt.register()
    arguments = [str(record.data_bin)]
    for flag, value in record.provenance.flags.items():
        arguments += [flag] if value == "" else [f"{flag}={value}"] if flag.startswith("--") else [flag, value]
    try:
        with redirect_stderr(StringIO()):
            args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    except (SystemExit, RuntimeError, ValueError, SyntaxError, TypeError, LookupError):
        raise UserError(
            f"{RUN_RECORD} of {record.name}: fairseq does not accept its flags; restore {RUN_RECORD} from {BACKUP}"
        ) from None
    for choice in VARIANT_CHOICES:
        choice.record_defaults(args)
    return describe_checkpoint({"args": args}, f"run.json of {record.name}")


def _accepted_settings(record: RunRecord) -> set[str]:
    """Return the settings whose change somebody accepted."""
    differences = (difference for change in record.environment_changes for difference in change.differences)
    flags = {flag for difference in differences for flag in re.findall(r"--([a-z][a-z-]*)", difference)}
    return {flag.removeprefix("no-").replace("-", "_") for flag in flags}


def _is_accepted(name: str, accepted: set[str]) -> bool:
    """Whether a setting, or one that determines it, is among the accepted ones."""
    return bool({name, "arch", re.sub("_(encoder|decoder|cross)$", "", name)} & accepted)


def refuse_vocabulary_of_checkpoint(path: Path, checkpoint: Mapping[str, Any], data_bin: DataBin) -> None:
    """Raise UserError if a checkpoint was trained with another vocabulary than that of a data-bin.

    Checkpoints of relumt's models have a fingerprint of both dictionaries; others tell only the number of symbols.
    """
    from fairseq.data import Dictionary

    from relumt.checkpoints.loading import fairseq_config
    from relumt.models.mechanism_transformer import vocabulary_fingerprint

    source, target = (Dictionary.load(str(data_bin.dictionary_path(language))) for language in data_bin.languages)
    recorded = getattr(fairseq_config(checkpoint, path)["model"], "vocabulary_fingerprint", None)
    if recorded is not None:
        differs = recorded != vocabulary_fingerprint(source, target)
    else:
        embeddings = [checkpoint["model"].get(f"{side}.embed_tokens.weight") for side in ("encoder", "decoder")]
        sizes = zip(embeddings, (source, target), strict=True)
        differs = any(embedding is not None and len(embedding) != len(symbols) for embedding, symbols in sizes)
    if differs:
        raise UserError(
            f"{path}: was trained with another vocabulary than that of {data_bin.folder}; give the data-bin that it "
            "was trained on (--data, or DATA_BIN for the scripts)"
        )
