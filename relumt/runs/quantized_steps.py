"""The steps of `relumt quantize`: translate a subset with a run's model or a quantized version, and score it.

Each model has a folder of its own below the run's (`relumt.runs.quantized_record`). The flags of fairseq-generate are
those that the run itself was evaluated with, so the scores differ only by the model.
"""

from dataclasses import dataclass, replace
from pathlib import Path

from relumt.errors import UserError
from relumt.files import changed_files, file_sha256
from relumt.runs.data_bin import open_data_bin
from relumt.runs.dataset_config import DatasetConfig
from relumt.runs.environment import Device, current_environment
from relumt.runs.evaluation_record import Evaluation, EvaluationSetup
from relumt.runs.evaluation_results import document_length, generate_log, generate_output, score_output
from relumt.runs.evaluation_setup import check_checkpoint, translation_precision
from relumt.runs.flags import Flags, join_flag_values
from relumt.runs.quantized_record import QUANTIZED_FOLDER, TimedEvaluation, read_quantized_record, save_quantized_record
from relumt.runs.record import TEST, RunRecord, load_record
from relumt.runs.run_config import FairseqCommand, RunConfig


@dataclass(frozen=True)
class EvaluatedRun:
    """A run that was trained and evaluated.

    Attributes:
        config: its folder and data; the settings in configs/ are not read.
        record: its run.json.
        evaluation: its evaluation on the test set, else on another subset.
    """

    config: RunConfig
    record: RunRecord
    evaluation: Evaluation

    @property
    def checkpoint(self) -> Path:
        """The checkpoint that was evaluated."""
        return self.config.checkpoints / self.evaluation.setup.checkpoint

    def flags(self, subset: str) -> Flags:
        """Return the flags of fairseq-generate that the run was evaluated with, for a subset."""
        # A space in run.json belongs to a value: no flag of fairseq-generate has several values.
        flags = {name: [value] if value else [] for name, value in self.evaluation.setup.flags.items()}
        return flags | {"--gen-subset": [subset]}

    def model_config(self, name: str) -> RunConfig:
        """Return the configuration whose folder is that of a model, "float" or a quantized one."""
        return replace(self.config, folder=self.config.folder / QUANTIZED_FOLDER / name)


@dataclass(frozen=True)
class Translation:
    """A translation that is to be made: what it is, and the command."""

    setup: EvaluationSetup
    command: FairseqCommand


def find_evaluated_run(folder: Path, data: Path | None) -> EvaluatedRun:
    """Return a run with its evaluation.

    Args:
        folder: folder of the run.
        data: data-bin, if it is no longer where it was during training.

    Raises:
        UserError: there is no such run, it is not evaluated, its checkpoint or data-bin is missing or not the run's
            own, or it translates documents whose sentences are translated again.
    """
    record = load_record(folder)
    if not record.evaluations:
        raise UserError(f"{folder}: expected a run that is evaluated, found no scores; run scripts/evaluate.sh")
    evaluation = record.evaluations.get(TEST) or next(iter(record.evaluations.values()))
    data_bin = open_data_bin(data or Path(record.data_bin))
    dataset = DatasetConfig(Path(), record.dataset, data_bin.folder)
    config = RunConfig(record.dataset, record.dataset, record.model, record.seed, data_bin, dataset, Path(), folder)
    run = EvaluatedRun(config, record, evaluation)
    if not run.checkpoint.is_file():
        raise UserError(f"{run.checkpoint}: no such file, but the run was evaluated with it; evaluate the run again")
    if evaluation.setup.one_by_one and document_length(evaluation.setup):
        raise UserError(f"{folder}: was translated with ONE_BY_ONE=1; evaluate it without, or choose another run")
    return run


def start_translation(
    run: EvaluatedRun, name: str, checkpoint: Path, subset: str, device: Device
) -> Translation | None:
    """Return how to translate a subset with a checkpoint; None if this is scored already.

    Args:
        run: the run.
        name: name of the model.
        checkpoint: the run's, or the quantized one.
        subset: what to translate.
        device: what computes.

    Raises:
        UserError: the data-bin has no such subset, or the checkpoint or the vocabulary is not the run's.
    """
    config, flags = run.model_config(name), run.flags(subset)
    config.data_bin.require_subset(subset)
    setup = EvaluationSetup(
        subset=subset,
        flags=join_flag_values(flags),
        data=config.data_bin.evaluation_checksum(subset),
        checkpoint=checkpoint.name,
        checkpoint_sha256=file_sha256(checkpoint),
        environment=current_environment(device).in_precision(translation_precision(flags)),
        one_by_one=False,
        length_penalty=run.evaluation.setup.length_penalty,
    )
    found = read_quantized_record(config.folder).find(setup)
    if found and not changed_files(config.folder, found.evaluation.files_sha256):
        return None
    check_checkpoint(run.config, run.record, run.evaluation.setup)
    config.folder.mkdir(parents=True, exist_ok=True)
    # Translations of another setup must not be scored as this one's if fairseq-generate fails.
    generate_output(config.folder, setup).unlink(missing_ok=True)
    arguments = config.generate_command(flags, checkpoint, config.folder, device)
    return Translation(setup, FairseqCommand(generate_log(config.folder, setup), arguments))


def score_translation(run: EvaluatedRun, name: str, setup: EvaluationSetup, cpu_seconds: float) -> None:
    """Score what fairseq-generate wrote, and record the scores; raises UserError if sentences are missing.

    Earlier scores of the subset are dropped before the files are written that they belong to.
    """
    config = run.model_config(name)
    translated = score_output(config, setup)
    record = read_quantized_record(config.folder)
    others = {subset: earlier for subset, earlier in record.evaluations.items() if subset != setup.subset}
    save_quantized_record(config.folder, replace(record, evaluations=others))
    translated.write_files(config.folder)
    scored = others | {setup.subset: TimedEvaluation(translated.evaluation, cpu_seconds)}
    save_quantized_record(config.folder, replace(record, evaluations=scored))
