"""What makes two runs the same run: flags, data, vocabulary, initial weights and environment."""

from collections.abc import Mapping
from dataclasses import asdict

from relumt.errors import UserError
from relumt.runs.data_bin import DataBin
from relumt.runs.environment import Device, Environment, current_environment
from relumt.runs.flags import Flags, join_flag_values
from relumt.runs.record import Initialization, Provenance

COMPARED_VERSIONS = ("torch", "fairseq", "relumt")
"""Packages whose version affects the result of training."""

SCORING_VERSIONS = ("sacrebleu", "sacremoses")
"""Packages whose version affects the scores of translations."""


def training_provenance(
    flags: Flags, data_bin: DataBin, device: Device, initialization: Initialization | None = None
) -> Provenance:
    """Describe a training that would start now; without `initialization` it starts from new weights.

    Raises:
        UserError: the flags name a subset that no data-bin can have.
    """
    return Provenance(
        flags=join_flag_values(flags),
        data={subset: data_bin.training_checksum(subset) for subset in training_subsets(flags)},
        dictionaries=data_bin.dictionaries(),
        initialization=initialization or Initialization(),
        environment=current_environment(device),
    )


def training_subsets(flags: Flags) -> list[str]:
    """Return the subsets that training reads: fairseq takes one to train on, and any number to validate on."""
    train, valid = (",".join(flags.get(name, [])) for name in ("--train-subset", "--valid-subset"))
    return [train or "train", *(valid or "valid").split(",")]


def provenance_differences(recorded: Provenance, current: Provenance) -> list[str]:
    """Return what differs between a recorded training and the present one, each as a short phrase."""
    names = dict.fromkeys([*recorded.flags, *current.flags])
    flags = [
        f"{format_flag(recorded.flags, name)} (now {format_flag(current.flags, name)})"
        for name in names
        if recorded.flags.get(name) != current.flags.get(name)
    ]
    # What is unknown now, such as the checksum of a deleted checkpoint, cannot differ.
    # How the weights were trained need not be compared, because their checksum is.
    weights = {name: value for name, value in asdict(current.initialization).items() if name not in ("flags", "data")}
    known = {name: value for name, value in weights.items() if value or name == "dataset"}
    return [
        *flags,
        *_changed("data", recorded.data, current.data),
        *_changed("vocabulary", recorded.dictionaries, current.dictionaries),
        *_changed("initialization", asdict(recorded.initialization), known),
        *environment_differences(recorded.environment, current.environment),
    ]


def environment_differences(recorded: Environment, current: Environment) -> list[str]:
    """Return what differs between two environments, each as a short phrase.

    The commit is not compared, because two commits may differ in documentation only; `Revision.code` is.
    """
    versions = {name: current.versions[name] for name in COMPARED_VERSIONS}
    revision = {"code": current.revision.code, "dirty": current.revision.dirty}
    return [
        *_changed("version", recorded.versions, versions),
        *_changed("revision", asdict(recorded.revision), revision),
        *_changed("device", asdict(recorded.device), asdict(current.device)),
        *_kernel_differences(recorded, current),
    ]


def evaluation_differences(recorded: Environment, current: Environment) -> list[str]:
    """Return what differs between two environments that may affect translations or their scores."""
    scoring = {name: current.versions[name] for name in SCORING_VERSIONS}
    return [*environment_differences(recorded, current), *_changed("version", recorded.versions, scoring)]


def _kernel_differences(recorded: Environment, current: Environment) -> list[str]:
    """Return what differs in RELUMT_KERNELS, and in Triton if it may run."""
    compared = asdict(current.kernels)
    if not current.may_run_triton:
        del compared["triton"]
    return _changed("kernels", asdict(recorded.kernels), compared)


def _changed(what: str, recorded: Mapping[str, object], current: Mapping[str, object]) -> list[str]:
    return [
        f"{what} {name} {recorded.get(name) or 'none'} (now {value or 'none'})"
        for name, value in current.items()
        if recorded.get(name) != value
    ]


def format_flag(flags: Mapping[str, str], name: str) -> str:
    """Format the flag `name` as on a command line, or as "no --name" if it is not given."""
    return f"{name} {flags[name]}".rstrip() if name in flags else f"no {name}"


def refuse_other_vocabulary(recorded: Provenance, data_bin: DataBin) -> None:
    """Raise UserError if the dictionaries of `data_bin`, or its direction, are not those of the recorded training."""
    dictionaries = data_bin.dictionaries()
    if list(recorded.dictionaries) == list(dictionaries)[::-1]:
        direction = "-".join(recorded.dictionaries)
        raise UserError(
            f"{data_bin.folder}: translates {'-'.join(dictionaries)}, but the run was trained on {direction}; set "
            "DATA_BIN to a data-bin of that direction"
        )
    if recorded.dictionaries != dictionaries:
        raise UserError(
            f"{data_bin.folder}: its vocabulary is not the one that the run was trained on; "
            "set DATA_BIN to the original data-bin, or set RUNS to another folder to train again"
        )
