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


def training_provenance(
    flags: Flags, data_bin: DataBin, device: Device, initialization: Initialization | None = None
) -> Provenance:
    """Describe a training that would start now; without `initialization` it starts from new weights."""
    return Provenance(
        flags=join_flag_values(flags),
        data={subset: data_bin.checksum(subset, ("idx",)) for subset in ("train", "valid")},
        dictionaries=data_bin.dictionaries(),
        initialization=initialization or Initialization(),
        environment=current_environment(device),
    )


def provenance_differences(recorded: Provenance, current: Provenance) -> list[str]:
    """Return what differs between a recorded training and the present one, each as a short phrase."""
    names = dict.fromkeys([*recorded.flags, *current.flags])
    flags = [
        f"{format_flag(recorded.flags, name)} (now {format_flag(current.flags, name)})"
        for name in names
        if recorded.flags.get(name) != current.flags.get(name)
    ]
    # What is unknown now, such as the checksum of a deleted checkpoint, cannot differ.
    known = {name: value for name, value in asdict(current.initialization).items() if value or name == "dataset"}
    return [
        *flags,
        *_changed("data", recorded.data, current.data),
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
    ]


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
    """Raise UserError if the dictionaries of `data_bin` are not those of the recorded training."""
    if recorded.dictionaries != data_bin.dictionaries():
        raise UserError(
            f"{data_bin.folder}: its vocabulary is not the one that the run was trained on; "
            "set DATA_BIN to the original data-bin, or set RUNS to another folder to train again"
        )
