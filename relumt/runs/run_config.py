"""What to run: DATASET and MODEL looked up in configs/, the data-bin, the flags, and the folder of the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.dataset_config import DatasetConfig, dataset_names, load_dataset, require_dataset
from relumt.runs.environment import Device
from relumt.runs.flags import Flags, command_line, parse_flags, read_flags

PRECISION_ADVICE = "set PRECISION (fp32, bf16, fp16) for training; translation is in fp32"

OF_THE_SCRIPTS = {
    "--seed": "set SEED instead",
    "--save-dir": "set RUNS instead",
    "--tensorboard-logdir": "set RUNS instead",
    "--path": "it is the run's best checkpoint, or the average that `average_checkpoints` of the dataset asks for",
    "--results-path": "set RUNS instead",
    "--user-dir": "it is relumt's",
    "--log-format": "run.json is read from the json log",
    "--log-file": "the log is train.log in the run's folder",
    "--cpu": "hide the GPU with CUDA_VISIBLE_DEVICES= instead",
    "--fp16": PRECISION_ADVICE,
    "--bf16": PRECISION_ADVICE,
    "--amp": PRECISION_ADVICE,
    "--memory-efficient-fp16": PRECISION_ADVICE,
    "--memory-efficient-bf16": PRECISION_ADVICE,
}
"""Flags that the scripts set themselves, each with what to do for whoever gives it."""

OF_READING = (
    "--task",
    "--document-length",
    "--document-separator",
    "--max-source-positions",
    "--max-target-positions",
)
"""Flags of training that say what a model reads, so that it has to read the same when it translates."""

CHECKPOINTS = "checkpoints"
"""Folder of the checkpoints in a run's."""

RESUMABLE = {"--update-epoch-batch-itr": ["True"]}
"""fairseq draws its batches with the seed plus the epoch in which it started, and keeps them: a resumed run would train
on others. With this it draws them anew in every epoch, resumed or not."""

POST_PROCESS = {"subword-nmt": "subword_nmt", "sentencepiece": "sentencepiece"}
"""What fairseq calls the undoing of each kind of subwords."""


@dataclass(frozen=True)
class Plan:
    """One run: a model on a dataset with a seed.

    Attributes:
        given: the dataset as it was typed, a name or the path of a data-bin.
        dataset, model, seed: what the run is called by.
        data_bin: the data.
        config: the settings of the dataset.
        model_args: the model's *.args.
        folder: where the run keeps everything it makes.
    """

    given: str
    dataset: str
    model: str
    seed: int
    data_bin: DataBin
    config: DatasetConfig
    model_args: Path
    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / CHECKPOINTS

    def train_flags(self, extra: list[str]) -> Flags:
        """The flags that make this run what it is: the dataset's, over them the model's, over them `extra`."""
        flags = self._add_flags(self.config.train | read_flags(self.model_args), extra)
        return RESUMABLE | flags | {"--seed": [str(self.seed)]}

    def generate_flags(self, extra: list[str], trained: Mapping[str, str]) -> Flags:
        """The flags of translation: how to read the data, over it the dataset's, over them `extra`.

        fairseq leaves out a last batch whose size is not a multiple of 8, so that the multiple has to be 1, and takes
        from a checkpoint neither the task nor how long its sentences may be, so that they come from `trained`, the
        flags of training.
        """
        flags = {name: [trained[name]] for name in OF_READING if name in trained}
        flags |= {"--required-batch-size-multiple": ["1"]}
        if self.data_bin.subwords in POST_PROCESS:
            flags["--post-process"] = [POST_PROCESS[self.data_bin.subwords]]
        return flags | self._add_flags(self.config.generate, extra)

    def train_command(self, flags: Flags, device: Device) -> list[str]:
        """Arguments of fairseq-train."""
        ours = {"--save-dir": [str(self.checkpoints)], "--tensorboard-logdir": [str(self.folder / "tensorboard")]}
        return self._command(flags | ours | {"--log-format": ["json"]}) + device.train_flags()

    def generate_command(self, flags: Flags, checkpoint: Path, folder: Path, device: Device) -> list[str]:
        """Arguments of fairseq-generate, which writes to `folder`; it translates in single precision everywhere."""
        ours = {"--path": [str(checkpoint)], "--results-path": [str(folder)], "--log-format": ["json"]}
        return self._command(flags | ours) + device.generate_flags()

    def _add_flags(self, flags: Flags, extra: list[str]) -> Flags:
        """Add the flags of the command line; raise UserError if a flag is one that the scripts set."""
        flags = flags | parse_flags(extra, "command line")
        for name, advice in OF_THE_SCRIPTS.items():
            if name in flags:
                raise UserError(f"{name} is set by the scripts; {advice}")
        return flags

    def _command(self, flags: Flags) -> list[str]:
        package = Path(__file__).resolve().parents[1]
        data = [str(self.data_bin.folder), "--source-lang", self.data_bin.source]
        return [*data, "--target-lang", self.data_bin.target, "--user-dir", str(package), *command_line(flags)]


def plan_run(dataset: str, model: str, seed: int, configs: Path, runs: Path, data_bin: Path | None) -> Plan:
    """Look up a dataset and a model by name.

    dataset: a name in configs/datasets, or the path of a data-bin, which is trained with the settings of the dataset
    `default`. data_bin: where the data-bin is if not in its default place.

    Raises:
        UserError: an unknown name, or no data-bin; it says which names are known or how to make the data-bin.
    """
    models = {path.stem: path for path in sorted((configs / "models").glob("*.args"))}
    if model not in models:
        raise UserError(f"no model '{model}' in {configs / 'models'}; known: {', '.join(models)}")
    name, config = dataset, load_dataset(dataset, configs / "datasets")
    if config is not None:
        data = data_bin or config.data_bin
        if not data.is_dir():
            raise UserError(f"{data}: no data-bin of '{name}'; make it with {config.how_to_make(data)}")
    elif Path(dataset).is_dir():
        config, data = require_dataset("default", configs / "datasets"), data_bin or Path(dataset)
        name = Path(dataset).resolve().name
    else:
        known = ", ".join(dataset_names(configs / "datasets"))
        raise UserError(f"no dataset '{dataset}' in {configs / 'datasets'} and no such data-bin; known: {known}")
    return Plan(dataset, name, model, seed, open_data_bin(data), config, models[model], runs / name / model / str(seed))


def has_checkpoints(run: Path) -> bool:
    """Whether a run's folder has any checkpoint."""
    return any((run / CHECKPOINTS).glob("*.pt"))
