"""The benchmarks that need no GPU run on tiny inputs; their results mean nothing here."""

import io
import json
import mmap
import os
import re
import sys

import pytest
import torch

from relumt.errors import AttemptFailedError, UserError
from relumt.plugin.cpu_products import CACHES, limit_compiled_products
from relumt.runs.environment import Device
from tests.benchmarks.cases import BENCHMARKS, table_rows
from tests.plugin.model.build import write_checkpoint


def test_liveness(run, data, config):
    printed = run("dead_attention.py", data, "--config", config, "--arch", "reluformer")
    assert [row[0] for row in table_rows(printed)[1:]] == [
        *(f"| encoder.layers.{i}.self_attn" for i in range(2)),
        *(f"| decoder.layers.{i}.{name}" for i in range(2) for name in ("self_attn", "encoder_attn")),
    ]


@pytest.mark.slow
def test_training(run, data, config, tmp_path):
    models = ["stock", "softmax", "reluformer --relu-gamma 2"]
    printed = run(
        "training.py", data, "--config", config, "--models", *models, "--steps", "2", "--warm-up", "1", "--decode", "1",
        "--repeats", "1", "--profile", "1", "--threads", torch.get_num_threads(), "--json", tmp_path / "results.json",
    )  # fmt: skip
    results = json.loads((tmp_path / "results.json").read_text())
    for kind, pairs in (("throughput", 2), ("repetition 1", 2), ("decoding", 1)):
        assert {name: speed["pairs"] for name, speed in results[kind].items()} == dict.fromkeys(models, pairs)
    systems = results["systems"]
    tables = [row[0] for row in table_rows(printed) if not row[0].startswith(("| operator", "| `"))]
    assert tables == 4 * ["| system", *(f"| {model}" for model in models)]
    assert all(results["profiles"][model]["operators"] for model in models)
    assert all(0 < system["held_bytes"] < system["peak_bytes"] for system in systems.values())
    assert all(system["decoding_tokens_per_second"] > 0 for system in systems.values())


def test_training_speed_is_measured_again_with_other_flags_or_another_baseline(monkeypatch, config, tmp_path):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import training

    measured = []

    def measure_systems(args, systems):
        measured.append(args.flags)
        turn = {"seconds": 1.0, "tokens": 9}
        return {name: training.Measurement(training=[turn], decoding=[], held=1, peak=2) for name in systems}

    monkeypatch.setattr(training, "measure_systems", measure_systems)
    repeated = [["softmax"], ["softmax", "--flags", "--dropout", "0.4"], ["softmax", "reluformer"]]
    for options in (*2 * [repeated[0]], *2 * [repeated[1]], repeated[2], [*repeated[2], "--baseline", "reluformer"]):
        arguments = ["data-bin", "--config", config, "--json", tmp_path / "speeds.json", "--models", *options]
        monkeypatch.setattr(sys, "argv", ["training.py", *map(str, arguments)])
        training.main()
    assert measured == [[], ["--dropout", "0.4"], [], []]


@pytest.mark.slow
def test_a_peer_needs_the_same_training(run, data, config, capsys):
    with pytest.raises(SystemExit) as end:
        run(
            "training.py", data, "--config", config, "--models", "softmax", "--joeynmt", sys.executable,
            "--flags", "--optimizer", "sgd",
        )  # fmt: skip
    assert end.value.code == 2 and "--joeynmt needs --optimizer adam" in capsys.readouterr().err


@pytest.mark.slow
def test_flags_that_a_system_refuses_end_the_benchmark(run, data, config, capsys):
    with pytest.raises(SystemExit) as end:
        run("training.py", data, "--config", config, "--models", "softmax", "softmax --relu-gamma 2", "--steps", "1")
    assert end.value.code == 2
    assert "softmax --relu-gamma 2: its process ended with status 2" in capsys.readouterr().err


WORKER = """
import sys
for line in sys.stdin:
    name, *numbers = line.split()
    if numbers == ["9"]:
        sys.exit(int(sys.argv[1]))
    print('{"seconds": 0.5, "tokens": %s}' % (numbers or [0])[0], flush=True)
"""


@pytest.fixture
def pool(monkeypatch):
    """The module worker_pool, and two processes that end with status 1 and 2 if asked to do task 9."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import worker_pool

    commands = {name: [sys.executable, "-c", WORKER, status] for name, status in (("a", "1"), ("b", "2"))}
    with worker_pool.running_workers(commands, threads=1) as workers:
        yield worker_pool, workers
    assert all(worker.process.poll() is not None for worker in workers.values())


def test_workers_work_in_alternating_order(pool, monkeypatch):
    worker_pool, workers = pool
    asked, ask = [], worker_pool.Worker.ask
    monkeypatch.setattr(
        worker_pool.Worker, "ask", lambda self, task: asked.append((self.name, task)) or ask(self, task)
    )
    answers = worker_pool.work_in_turns(workers, "train", [5, 6])
    assert asked == [("b", "train 5"), ("a", "train 5"), ("a", "train 6"), ("b", "train 6")]
    assert {name: [turn["tokens"] for turn in turns] for name, turns in answers.items()} == {"a": [5, 6], "b": [5, 6]}


@pytest.mark.parametrize(("name", "error"), [("a", AttemptFailedError), ("b", UserError)])
def test_a_worker_that_ends_is_named(pool, name, error):
    worker_pool, workers = pool
    with pytest.raises(error, match=f"{name}: its process ended with status"):
        worker_pool.work_in_turns({name: workers[name]}, "train", [9])


def test_workers_do_not_inherit_what_relumt_sets(pool, monkeypatch):
    for name in CACHES:
        monkeypatch.delenv(name, raising=False)
    limit_compiled_products()
    assert not set(CACHES) & set(pool[0].worker_environment())
    monkeypatch.setenv(CACHES[0], "7")
    assert pool[0].worker_environment()[CACHES[0]] == "7"


def test_a_python_that_does_not_exist_is_refused(pool):
    with pytest.raises(UserError, match="no-python cannot be run"), pool[0].running_workers({"a": ["no-python"]}, 1):
        pass


def test_a_worker_answers_requests(monkeypatch, capfd):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import worker_protocol

    def train(number):
        os.write(1, b"a message\n")
        block = mmap.mmap(-1, number * 2**20)  # not a tensor, which could take memory that an earlier test has freed
        for start in range(0, len(block), mmap.PAGESIZE):
            block[start] = 1
        kept.append(block)
        return number

    kept = []
    monkeypatch.setattr(sys, "stdin", io.StringIO("memory\ntrain 50\nmemory\n"))
    stdout = os.dup(1)
    try:
        worker_protocol.serve({"train": train})
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)
    printed = capfd.readouterr()
    before, trained, after = map(json.loads, printed.out.splitlines())
    assert trained["tokens"] == 50 and trained["seconds"] > 0
    assert after["peak"] - before["held"] > 45 * 2**20
    assert "a message" in printed.err


def test_the_memory_peak_of_a_gpu_is_that_of_all_steps(monkeypatch):
    """fairseq resets it after each step."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import fairseq_worker
    import worker_protocol

    allocated = {"peak": 0}

    def reset():
        allocated["peak"] = 0

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: allocated["peak"])
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda: 1)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", reset)
    monkeypatch.setattr(worker_protocol, "reset_peak_memory_stats", reset)
    fairseq_worker.keep_memory_peaks()
    for bytes_of_step in (3, 7, 5):
        allocated["peak"] = max(allocated["peak"], bytes_of_step)
        torch.cuda.reset_peak_memory_stats()
    assert worker_protocol.measure_memory() == {"held": 1, "peak": 7}
    assert worker_protocol.measure_memory() == {"held": 1, "peak": 0}


def test_tables_of_systems(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measurement
    import training

    turns = {"a": [(2.0, 100), (4.0, 100)], "b": [(1.0, 100), (2.0, 100)]}
    answers = {name: [{"seconds": s, "tokens": t} for s, t in pairs] for name, pairs in turns.items()}
    measured = {name: measurement.Measurement(found, found, 2**20, 3 * 2**20) for name, found in answers.items()}
    speeds = measurement.relative_seconds("a", answers)
    assert training.training_table("a", speeds, measured).splitlines()[2:] == [
        "| a | 2 | 1.000 |  | 38 | 3 | 2 |",
        "| b | 2 | 2.000 |  | 75 | 3 | 2 |",
    ]
    assert training.decoding_table("a", speeds, measured).splitlines()[3] == "| b | 2 | 2.000 |  | 75 |"
    speeds = {"b": {"pairs": 6, "median": 2.0, "low": 1.5, "high": 2.5}}
    assert training.speed_cells("b", speeds) == "| b | 6 | 2.000 | 1.500–2.500"


def test_stock_fairseq_gets_nothing_of_relumt(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import training

    fp32, bf16 = (Device("cpu", "x86_64", 1, precision) for precision in ("fp32", "bf16"))
    monkeypatch.setattr(training, "benchmark_device", {"fp32": fp32}.__getitem__)
    assert training.systems_by_name(["stock", "softmax"], [fp32, bf16]) == {
        "stock, fp32": ("stock", fp32),
        "softmax, fp32": ("softmax", fp32),
        "softmax, bf16": ("softmax", bf16),
    }
    flags = {"--task": ["translation_documents"], "--document-length": ["512"], "--source-lang": ["de"], "--lr": ["1"]}
    assert training.without_task(flags) == {"--source-lang": ["de"], "--lr": ["1"]}


def test_attention(run):
    systems = ["softmax", "relu", "entmax15"]
    printed = run("attention_speed.py", "--systems", *systems, "--lengths", "8", "--heads", "2", "--rounds", "2")
    assert all(any(system in line for line in printed.splitlines()) for system in systems)


@pytest.mark.slow
def test_kernels(run, monkeypatch):
    pytest.importorskip("triton")
    monkeypatch.setenv("RELUMT_KERNELS", "auto")  # the benchmark sets it, too
    sizes = "--lengths 8 --batch 2 --heads 1 --head-dim 4 --rounds 1 --ceiling-size 8 --dtype float32 --padding 0.25"
    cells = {row[1]: row for row in table_rows(run("kernel_speed.py", *sizes.split())) if row[2] == "forward"}
    assert {"softmax, math", "relu, with row stats", "sigmoid", "inhibitor", "inhibitor, cdist"} < cells.keys()
    assert all(float(cells[system][8].rstrip(" |")) < 1e-5 for system in ("relu", "relu, unfused"))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("attention_speed.py", "--rounds 0"),
        ("decoding_speed.py", "model data --batch-size 0"),
        ("kernel_speed.py", "--padding 1.5"),
        ("loss.py", "--types 10 -1"),
        ("bleu_by_length.py", "runs --groups 0"),
    ],
)
def test_wrong_numbers_are_errors_of_one_line(run, capsys, name, options):
    with pytest.raises(SystemExit) as end:
        run(name, *options.split())
    message = capsys.readouterr().err
    assert end.value.code == 2 and message.count("\n") == 1 and options.split()[-1] in message


def test_chunks(run, data):
    printed = run("chunk_statistics.py", data, "--subsets", "test", "--lengths", "10", "100")
    assert [row[3] for row in table_rows(printed)[1:]] == ["10", "100"]
    assert re.search(r"^Machine: .+, \d+ threads?; ", printed, re.MULTILINE)


@pytest.mark.slow
def test_analysis(run, data, tmp_path):
    printed = run("analysis_cost.py", write_checkpoint(tmp_path), data, "--repeats", "2")
    assert "of a validation pass" in printed and "MiB more at the peak" in printed


def test_filtering(run, data, tmp_path):
    checkpoint = write_checkpoint(tmp_path, "--attention", "rela_g", "--max-source-positions", "8")
    found = json.loads(run("filtering_accuracy.py", checkpoint, data, "--noise", "0.5"))
    assert 0 < found["pairs"] < 24 and 0 <= found["null_rate"]["AUC"] <= 1


def test_loss_measures_time_and_memory(run):
    table = run("loss.py", "--positions", 600, "--size", 8, "--types", 300, "--repeats", 2)
    types, speed, fairseq, ours = (cell.strip("| ") for cell in table_rows(table)[-1])
    assert types == "300"
    assert float(speed.split()[0]) > 0
    assert int(fairseq) > int(ours)
