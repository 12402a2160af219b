"""What makes two runs the same run: flags, data, vocabulary, versions, revision, device."""

from typing import Any

from relumt.errors import UserError
from relumt.runs.data_bin import DataBin
from relumt.runs.environment import Device, revision, versions
from relumt.runs.flags import Flags, readable

Fingerprint = dict[str, Any]

RECORDED_ONLY = {("revision", "commit")}
"""Two commits may differ in documents alone; what counts is the package's code."""

NEW_WEIGHTS = {"dataset": ""}
"""The start of a training that starts from no other's weights."""

VERSIONS_THAT_COUNT = ("torch", "fairseq", "relumt")


def environment_fingerprint(data_bin: DataBin, device: Device) -> Fingerprint:
    """The part that training and translation share: SHA-256 of the dictionaries, versions, revision, device."""
    current = versions()
    return {
        "dictionaries": data_bin.dictionaries(),
        "versions": {name: current[name] for name in VERSIONS_THAT_COUNT},
        "revision": revision(),
        "device": {"kind": device.kind, "name": device.name, "count": device.count},
    }


def training_fingerprint(flags: Flags, data_bin: DataBin, device: Device) -> Fingerprint:
    """All of it: the flags as resolved, without paths, the sentences by their lengths, the environment's part, and the
    precision of training.
    """
    environment = environment_fingerprint(data_bin, device)
    environment["device"]["precision"] = device.precision
    data = {subset: data_bin.checksum(subset, ("idx",)) for subset in ("train", "valid")}
    return {"flags": readable(flags), "data": data} | environment


def differences(then: Fingerprint, now: Fingerprint) -> list[str]:
    """What differs between a recorded fingerprint and the present one, a short phrase each.

    Only what both have is compared: translation leaves out the flags, data, start and precision of training, and older
    records have no data, nor a start where there was none.
    """
    found = []
    if "flags" in now:
        names = [*then["flags"], *(name for name in now["flags"] if name not in then["flags"])]
        found += [
            f"{as_typed(then['flags'], name)} (now {as_typed(now['flags'], name)})"
            for name in names
            if then["flags"].get(name) != now["flags"].get(name)
        ]
    then = {"start": NEW_WEIGHTS} | then
    for part in ("data", "start", "versions", "revision", "device"):
        found += [
            f"{part.removesuffix('s')} {name} {then[part].get(name) or 'none'} (now {value or 'none'})"
            for name, value in now.get(part, {}).items()
            if part in then
            if then[part].get(name) != value and (part, name) not in RECORDED_ONLY
        ]
    return found


def as_typed(flags: dict[str, str], name: str) -> str:
    """The flag `name` with its values, or "no --name" where it is not given."""
    return f"{name} {flags[name]}".rstrip() if name in flags else f"no {name}"


def refuse_other_vocabulary(then: Fingerprint, data_bin: DataBin) -> None:
    """Raise UserError if the dictionaries of `data_bin` are not those recorded."""
    if then["dictionaries"] != data_bin.dictionaries():
        raise UserError(
            f"{data_bin.folder}: a data-bin of another vocabulary than the run was trained on; "
            "give that one (DATA_BIN), or train anew with another RUNS"
        )
