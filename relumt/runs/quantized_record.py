"""quantized.json: how a run's model, or its quantized version, translated. It lies in RUN/quantized/NAME.

NAME is "float" for the model of the run, and that of the quantization ("int16", "int8-attention") for the others. The
run's own run.json and translations are not touched.
"""

from dataclasses import dataclass, field
from pathlib import Path

from relumt.atomic_output import write_text_atomically
from relumt.json_files import encode_json, read_versioned
from relumt.runs.evaluation_record import Evaluation, EvaluationSetup
from relumt.runs.field_types import Count, NonNegative, Subset

QUANTIZED_FOLDER = "quantized"
"""Subfolder of a run's folder with one folder per model."""

FLOAT = "float"
"""Name of the model that is not quantized."""

QUANTIZED_RECORD = "quantized.json"

SCHEMA = 1
"""Increased whenever the meaning of quantized.json changes."""

ADVICE = "delete it and run relumt quantize again"


@dataclass(frozen=True)
class QuantizedModel:
    """How a model was quantized.

    Attributes:
        bits: width of stored integers.
        part: "attention" or "all".
        original_sha256: SHA-256 of the checkpoint that was quantized.
        checkpoint_sha256: SHA-256 of the result.
        calibration_subset: the sentences that scales are calibrated on.
        calibration_data: checksum of these.
        attentions, linears: how many modules compute with integers.
        accumulator_bits: what signed accumulators need at worst, by sum.
    """

    bits: Count
    part: str
    original_sha256: str
    checkpoint_sha256: str
    calibration_subset: Subset
    calibration_data: str
    attentions: Count
    linears: Count
    accumulator_bits: dict[str, Count]


@dataclass(frozen=True)
class TimedEvaluation:
    """The scores of a subset, and the CPU time of its translation with loading the model."""

    evaluation: Evaluation
    cpu_seconds: NonNegative


@dataclass(frozen=True)
class QuantizedRecord:
    """The file.

    Attributes:
        model: None for the float model.
        evaluations: by subset.
        schema: version of this format.
    """

    model: QuantizedModel | None = None
    evaluations: dict[str, TimedEvaluation] = field(default_factory=dict)
    schema: int = SCHEMA

    def find(self, setup: EvaluationSetup) -> TimedEvaluation | None:
        """Return the scores of a translation with this setup, in any environment; None if there are none."""
        found = self.evaluations.get(setup.subset)
        return found if found and found.evaluation.setup.matches(setup) else None


def read_quantized_record(folder: Path) -> QuantizedRecord:
    """Read the record in a folder, empty if there is none; raise UserError if it is not valid."""
    try:
        return read_versioned(folder / QUANTIZED_RECORD, QuantizedRecord, SCHEMA, ADVICE)
    except FileNotFoundError:
        return QuantizedRecord()


def save_quantized_record(folder: Path, record: QuantizedRecord) -> None:
    """Write the record; an interrupted write leaves the previous file."""
    write_text_atomically(folder / QUANTIZED_RECORD, encode_json(record))


def find_quantized_records(run: Path) -> dict[str, QuantizedRecord]:
    """Return the records of a run by the model's name: the float model first, then by part and falling bits."""
    records = {
        path.parent.name: read_quantized_record(path.parent)
        for path in (run / QUANTIZED_FOLDER).glob(f"*/{QUANTIZED_RECORD}")
    }

    def rank(name: str) -> tuple[bool, str, int]:
        model = records[name].model
        return (True, model.part, -model.bits) if model else (False, "", 0)

    return {name: records[name] for name in sorted(records, key=rank)}
