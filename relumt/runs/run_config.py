"""What to run: DATASET and MODEL looked up in configs/, the data-bin, the flags, and the folder of the run."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from relumt.errors import UserError
from relumt.runs.data_bin import DataBin, open_data_bin
from relumt.runs.environment import Device
from relumt.runs.flags import Flags, command_line, parse_flags, read_flags

PRECISION_ADVICE = "set PRECISION (fp32, bf16, fp16) for training; translation is in fp32"

OF_THE_SCRIPTS = {
    "--seed": "set SEED instead",
    "--save-dir": "set RUNS instead",
    "--tensorboard-logdir": "set RUNS instead",
    "--path": "it is the run's best checkpoint, or the average that the dataset's file `average` asks for",
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
        dataset_folder: folder of the dataset's *.args.
        model_args: the model's *.args.
        folder: where the run keeps everything it makes.
    """

    given: str
    dataset: str
    model: str
    seed: int
    data_bin: DataBin
    dataset_folder: Path
    model_args: Path
    folder: Path

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / CHECKPOINTS

    @property
    def starts_from(self) -> str:
        """The dataset on which the same model is trained first, "" where there is none."""
        return starts_from(self.dataset_folder)

    @property
    def averaged(self) -> int:
        """How many last checkpoints are averaged for translation, which the dataset's file `average` says; else 0.

        Raises:
            UserError: it holds no number.
        """
        path = self.dataset_folder / "average"
        text = path.read_text(encoding="utf-8").strip() if path.is_file() else "0"
        if not text.isdecimal():
            raise UserError(f"{path}: {text!r} is no number of checkpoints; write one integer")
        return int(text)

    def train_flags(self, extra: list[str]) -> Flags:
        """The flags that make this run what it is: the dataset's, over them the model's, over them `extra`."""
        return RESUMABLE | self._flags("train.args", extra) | {"--seed": [str(self.seed)]}

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
        return flags | self._flags("generate.args", extra)

    def train_command(self, flags: Flags, device: Device) -> list[str]:
        """Arguments of fairseq-train."""
        ours = {"--save-dir": [str(self.checkpoints)], "--tensorboard-logdir": [str(self.folder / "tensorboard")]}
        return self._command(flags | ours | {"--log-format": ["json"]}) + device.train_flags()

    def generate_command(self, flags: Flags, checkpoint: Path, folder: Path, device: Device) -> list[str]:
        """Arguments of fairseq-generate, which writes to `folder`; it translates in single precision everywhere."""
        ours = {"--path": [str(checkpoint)], "--results-path": [str(folder)], "--log-format": ["json"]}
        return self._command(flags | ours) + device.generate_flags()

    def _flags(self, file: str, extra: list[str]) -> Flags:
        flags = read_flags(self.dataset_folder / file)
        if file == "train.args":
            flags |= read_flags(self.model_args)
        flags |= parse_flags(extra, "command line")
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

    dataset: a folder in configs/datasets, or the path of a data-bin, which then has the flags of the dataset
    `default`. data_bin: where the data-bin is if not in data-bin/DATASET.

    Raises:
        UserError: an unknown name, or no data-bin; it says which names are known or how to make the data-bin.
    """
    datasets = {path.name: path for path in sorted((configs / "datasets").glob("*/"))}
    models = {path.stem: path for path in sorted((configs / "models").glob("*.args"))}
    if model not in models:
        raise UserError(f"no model '{model}' in {configs / 'models'}; known: {', '.join(models)}")
    if dataset in datasets:
        name, folder = dataset, datasets[dataset]
        data = data_bin or default_data_bin(folder)
        if not data.is_dir():
            raise UserError(f"{data}: no data-bin of '{name}'; make it with {how_to_make(folder, data)}")
    elif Path(dataset).is_dir():
        data, folder = data_bin or Path(dataset), configs / "datasets" / "default"
        name = Path(dataset).resolve().name
    else:
        known = ", ".join(datasets)
        raise UserError(f"no dataset '{dataset}' in {configs / 'datasets'} nor a data-bin there; known: {known}")
    return Plan(dataset, name, model, seed, open_data_bin(data), folder, models[model], runs / name / model / str(seed))


def has_checkpoints(run: Path) -> bool:
    """Whether a run's folder has any checkpoint."""
    return any((run / CHECKPOINTS).glob("*.pt"))


def starts_from(dataset_folder: Path) -> str:
    """The dataset that the file `start` in a dataset's folder names, "" where there is none."""
    path = dataset_folder / "start"
    return path.read_text(encoding="utf-8").strip() if path.is_file() else ""


def default_data_bin(dataset_folder: Path) -> Path:
    """data-bin/NAME; NAME is the dataset's, or what its file data_bin says where it shares another's data."""
    shared = dataset_folder / "data_bin"
    name = shared.read_text(encoding="utf-8").strip() if shared.is_file() else dataset_folder.name
    return Path("data-bin") / name


def how_to_make(dataset_folder: Path, data: Path) -> str:
    """The command that makes the data-bin `data`: a script of its own, or the one for any bitext."""
    script = dataset_folder.parents[2] / "data_prep" / f"{data.name}.sh"
    if script.is_file():
        return f"data_prep/{script.name}"
    return f"data_prep/prepare.sh … --out {data} (docs/tables.md says from what)"
