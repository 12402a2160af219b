"""Train and translate batches on request, with the command line of fairseq-train: a worker of training.py.

    python benchmarks/fairseq_worker.py BATCHES DATA-BIN [flags of fairseq-train…]

Without --user-dir this is stock fairseq: nothing of relumt is imported. A request is a line on stdin and its answer a
line of JSON on stdout; between requests the process is blocked in reading, so it needs no CPU time.

    memory          → {"held": bytes held now, "peak": largest amount held since the last such request}
    train NUMBER    → {"seconds": wall time of a step on a batch, "tokens": its target tokens}
    translate NUMBER → the same for the translation of a batch
    profile COUNT   → where the time of the steps on the first batches goes, a `Profile`
"""

import itertools
import json
import logging
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.cuda import reset_peak_memory_stats  # the original: `main` replaces torch.cuda's
from torch.profiler import ProfilerActivity, profile

BEAM = 5
"""Width of the beam search of all systems."""

SENTENCES = 100
"""Sentences per batch of beam search."""

KINDS = {
    "products": r"gemm|gemv|cutlass|xmma|nvjet|cublas|splitK",
    "attention": r"flash|fmha|sdpa|cudnn|mem_eff|^forward|^backward_d",
    "softmax": r"softmax",
    "optimizer": r"adam|multi_tensor|_foreach",
    "copies": r"^Mem|copy|cat|index|gather|scatter|embedding",
}
"""Kind of kernel → what its name contains; the first that matches counts, and all others are "other"."""

SYNCHRONIZATIONS = re.compile(r"cuda(Stream|Device|Event)Synchronize|cudaMemcpy$")
LAUNCHES = re.compile(r"cu(da)?(Launch|GraphLaunch)\w*Kernel\w*|cudaGraphLaunch")
ROWS = 12
"""Rows of the tables of kernels and operators."""

Profile = dict[str, Any]


def build_trainer(arguments: list[str]) -> Any:
    """Return fairseq's trainer of a new model, at the beginning of an epoch after --attention-softmax-epochs."""
    from fairseq import options, tasks  # imported here, after logging is configured
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf
    from fairseq.trainer import Trainer

    args = options.parse_args_and_arch(options.get_training_parser(), arguments)
    if torch.cuda.is_available():
        args.tpu = False  # fairseq takes --bf16 as a request for a TPU, and would train on the CPU
    config = convert_namespace_to_omegaconf(args)
    torch.manual_seed(1)
    task = tasks.setup_task(config.task)
    trainer = Trainer(config, task, task.build_model(config.model), task.build_criterion(config.criterion))
    trainer.begin_epoch(sys.maxsize)
    return trainer


def write_batches(path: Path, arguments: Sequence[str], train: int, test: int) -> int:
    """Write the batches that all systems compute on, as fairseq collates them, for a command line of fairseq-train.

    The file has "train", batches from as many epochs as it takes; "test", batches to translate of all lengths; and
    "lengths", the number of tokens, with </s>, of each translation of a batch of the latter.

    Args:
        path: the file.
        arguments: of fairseq-train, without a device: nothing is trained here.
        train: number of batches to train on.
        test: the most batches to translate.

    Returns:
        the number of batches to translate.
    """
    trainer = build_trainer([*arguments, "--cpu"])
    epochs = (trainer.get_train_iterator(epoch).next_epoch_itr(shuffle=True) for epoch in itertools.count(1))
    batches = list(itertools.islice(itertools.chain.from_iterable(epochs), train))
    translated: list[dict[str, Any]] = []
    if test:
        task = trainer.task
        task.load_dataset("test")
        limits = {"max_positions": trainer.model.max_positions(), "ignore_invalid_inputs": True}
        iterator = task.get_batch_iterator(task.dataset("test"), max_sentences=SENTENCES, **limits)
        found = [batch for batch in iterator.next_epoch_itr(shuffle=False) if batch]
        translated = found[:: max(1, len(found) // test)][:test]
    pad = trainer.task.target_dictionary.pad()
    lengths = [max(2, round(batch["target"].ne(pad).sum().item() / batch["nsentences"])) for batch in translated]
    torch.save({"train": batches, "test": translated, "lengths": lengths}, path)
    return len(translated)


class FairseqSystem:
    """A trainer and the batches that it trains on and translates."""

    def __init__(self, trainer: Any, batches: dict[str, list[Any]]) -> None:
        self.trainer, self.batches = trainer, batches
        self.is_prepared_for_inference = False

    def train(self, number: int) -> int:
        """Take a training step on a batch; return its target tokens."""
        batch = self.batches["train"][number]
        self.trainer.train_step([batch], raise_oom=True)
        return batch["ntokens"]

    def translate(self, number: int) -> int:
        """Translate a batch by beam search into sentences of the given length; return their tokens."""
        from fairseq import utils
        from fairseq.dataclass.configs import GenerationConfig

        self.prepare_for_inference()
        length = self.batches["lengths"][number] - 1  # fairseq does not count </s>
        model, task = self.trainer.model, self.trainer.task
        config = GenerationConfig(beam=BEAM, min_len=length, max_len_a=0, max_len_b=length)
        batch = self.batches["test"][number]
        hypotheses = task.inference_step(
            task.build_generator([model], config), [model], utils.move_to_cuda(batch) if self.trainer.cuda else batch
        )
        return sum(len(beam[0]["tokens"]) for beam in hypotheses)

    def prepare_for_inference(self) -> None:
        """Change the model as fairseq-generate does, which ends training.

        A model that has trained with --cpu-bf16 translates as with fairseq-generate's --bf16.
        """
        if not self.is_prepared_for_inference:
            config = deepcopy(self.trainer.cfg)
            config.common.bf16 = getattr(config.criterion, "cpu_bf16", False)
            self.trainer.model.prepare_for_inference_(config)
            self.trainer.model.eval()
            self.is_prepared_for_inference = True


def synchronize() -> None:
    """Wait for the GPU if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def measure_memory() -> dict[str, int]:
    """Return the memory held now and the largest amount since the last call: tensors on a GPU, else resident memory.

    The kernel's VmHWM is read, because getrusage starts with the memory of the process that started this one. Without
    permission to reset it, the peak since the process began is returned.
    """
    if torch.cuda.is_available():
        peak = torch.cuda.max_memory_allocated()
        reset_peak_memory_stats()
        return {"held": torch.cuda.memory_allocated(), "peak": peak}
    process = Path("/proc/self")
    status = dict(re.findall(r"^(\w+):\s*(\d+) kB$", (process / "status").read_text(encoding="utf-8"), re.MULTILINE))
    with suppress(OSError):
        (process / "clear_refs").write_text("5", encoding="ascii")
    return {"held": int(status["VmRSS"]) * 1024, "peak": int(status["VmHWM"]) * 1024}


def profile_steps(take_step: Callable[[int], int], count: int) -> Profile:
    """Return what `take_step` does for each of the batches 0 … count − 1, per step; times are in milliseconds.

    The profiler slows the CPU down: compare the GPU's busy time with the time of a step without it. A synchronization
    is a call in which the CPU waits for the GPU.
    """
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if torch.cuda.is_available() else [])]
    with profile(activities=activities) as profiler:
        for number in range(count):
            take_step(number)
        synchronize()
    events = list(profiler.profiler.kineto_results.events())
    kernels = [event for event in events if event.device_type() == DeviceType.CUDA and not event.is_user_annotation()]
    calls = Counter(event.name() for event in events if event.device_type() == DeviceType.CPU)
    own_times: Counter[str] = Counter()
    by_kind: Counter[str] = Counter()
    for kernel in kernels:
        milliseconds = kernel.duration_ns() / 1e6 / count
        own_times[kernel.name()] += milliseconds
        by_kind[kind_of_kernel(kernel.name())] += milliseconds
    operators = {row.key: row.self_cpu_time_total / 1e3 / count for row in profiler.key_averages()}
    spans = [(kernel.start_ns(), kernel.start_ns() + kernel.duration_ns()) for kernel in kernels]
    return {
        "busy": busy_time(spans) / 1e6 / count,
        "kinds": dict(by_kind),
        "kernels": own_times.most_common(ROWS),
        "operators": Counter(operators).most_common(ROWS),
        "launches": sum(number for name, number in calls.items() if LAUNCHES.match(name)) / count,
        "synchronizations": sum(number for name, number in calls.items() if SYNCHRONIZATIONS.match(name)) / count,
        "reads": calls["aten::_local_scalar_dense"] / count,
    }


def kind_of_kernel(name: str) -> str:
    """Return the kind of a kernel, one of KINDS or "other"."""
    return next((kind for kind, pattern in KINDS.items() if re.search(pattern, name, re.IGNORECASE)), "other")


def busy_time(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of intervals (start, end)."""
    busy, last = 0, 0
    for start, end in sorted(spans):
        busy += max(0, end - max(start, last))
        last = max(last, end)
    return busy


def answer(system: FairseqSystem, name: str, number: int) -> dict[str, Any]:
    """Return the answer to a request; `number` is 0 where a request has none."""
    if name == "memory":
        return measure_memory()
    if name == "profile":
        return profile_steps(system.train, number)
    synchronize()
    start = time.perf_counter()
    tokens = getattr(system, name)(number)
    synchronize()
    return {"seconds": time.perf_counter() - start, "tokens": tokens}


def main() -> None:
    """Load the batches, build the trainer and answer requests until stdin is closed; all else is printed to stderr."""
    logging.basicConfig(level=logging.WARNING)
    torch.cuda.reset_peak_memory_stats = lambda device=None: None  # fairseq resets the peak after each step
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    answers = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8")
    os.dup2(2, 1)
    path, *arguments = sys.argv[1:]
    from fairseq import utils

    trainer, batches = build_trainer(arguments), torch.load(path)
    if trainer.cuda:  # as fairseq's data loader does, so that copies to the GPU do not wait
        batches = utils.apply_to_sample(torch.Tensor.pin_memory, batches)
    system = FairseqSystem(trainer, batches)
    for line in sys.stdin:
        name, *numbers = line.split()
        print(json.dumps(answer(system, name, int(*numbers))), file=answers)


if __name__ == "__main__":
    main()
