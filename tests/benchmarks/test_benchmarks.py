"""The benchmarks run on tiny inputs; their results mean nothing here."""

import gc
import importlib
import json
import sys
from types import SimpleNamespace

import pytest

from relumt.errors import AttemptFailedError, UserError
from tests.benchmarks.conftest import BENCHMARKS


@pytest.fixture
def load(monkeypatch):
    """A function that imports a module of benchmarks/."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return importlib.import_module


def test_attention(run):
    systems = ["softmax", "softmax, flash", "relu, with row stats", "inhibitor, naive"]
    rows = run("attention.py", "--systems", *systems, *"--lengths 8 520 --heads 1 --head-dim 4 --rounds 1".split())
    directions = ["forward", "backward", "forward + backward"]
    assert [row[:3] for row in rows] == [
        [n, system, direction]
        for n, systems in (("8", systems), ("520", systems[:-1]))  # the naive form is limited to 512
        for direction in directions
        for system in systems
    ]
    assert all(row[4] == row[6] == "1.00" for row in rows if row[1] == "softmax")


@pytest.mark.slow
def test_training(run, data, config, tmp_path, capsys):
    models, path = ["stock", "softmax", "reluformer --relu-gamma 2"], tmp_path / "results.json"
    numbers = "--steps 2 --warm-up 1 --decode 1 --repeats 1 --profile 1 --threads 1 --json".split()
    rows = run("training.py", data, "--config", config, "--models", *models, *numbers, path)
    results = json.loads(path.read_text())
    assert all(list(results[kind]) == models for kind in ("throughput", "repetition 1", "decoding"))
    assert [row[0] for row in rows if row[0] in models] == 4 * models
    for system in results["systems"].values():
        assert [len(turns) for turns in system["passes"]] == [2, 2] and len(system["decoding"]) == 1
        assert 0 < system["held"] < system["peak"] and system["profile"]["operators"]
    with pytest.raises(SystemExit) as end:
        run("training.py", data, "--config", config, "--models", "softmax", "softmax --relu-gamma 2", "--steps", "1")
    assert end.value.code == 2
    assert "softmax --relu-gamma 2: its process ended with status 2" in capsys.readouterr().err


TURN = {"seconds": 1.0, "tokens": 9}


def test_training_is_measured_again_with_other_flags_or_another_baseline(load, monkeypatch, config, tmp_path):
    training, measured = load("training"), []

    def measure_systems(args, systems):
        measured.append(args.flags)
        return {name: load("timing").Measurement([TURN], [[TURN]], [], 1, 2) for name in systems}

    monkeypatch.setattr(training, "measure_systems", measure_systems)
    repeated = [["softmax"], ["softmax", "--flags", "--dropout", "0.4"], ["softmax", "reluformer"]]
    for options in (*2 * [repeated[0]], *2 * [repeated[1]], repeated[2], [*repeated[2], "--baseline", "reluformer"]):
        arguments = ["data-bin", "--config", config, "--json", tmp_path / "speeds.json", "--models", *options]
        monkeypatch.setattr(sys, "argv", ["training.py", *map(str, arguments)])
        training.main()
    assert measured == [[], ["--dropout", "0.4"], [], []]


def test_a_table_of_speeds(load):
    turns = {"a": [(2.0, 100), (4.0, 100)], "b": [(1.0, 100), (2.0, 100)]}
    answers = {name: [{"seconds": s, "tokens": t} for s, t in pairs] for name, pairs in turns.items()}
    table = load("training").speed_table("training", "a", answers, {"peak": ["3", "4"]})
    assert table.splitlines()[2:] == ["| a | 2 | 1.000 |  | 38 | 3 |", "| b | 2 | 2.000 |  | 75 | 4 |"]
    table = load("training").speed_table("training", "a", {name: 3 * found for name, found in answers.items()}, {})
    assert table.splitlines()[3] == "| b | 6 | 2.000 | 2.000–2.000 | 75 |"


WORKER = """
import sys
for line in sys.stdin:
    name, number = line.split()
    if number == "9":
        sys.exit(int(sys.argv[1]))
    print('{"tokens": %s}' % number, flush=True)
"""


def test_workers_work_in_alternating_order_and_are_named_if_they_end(load, monkeypatch):
    timing, asked = load("timing"), []
    ask = timing.Worker.ask
    monkeypatch.setattr(timing.Worker, "ask", lambda self, task: asked.append((self.name, task)) or ask(self, task))
    commands = {name: [sys.executable, "-c", WORKER, status] for name, status in (("a", "1"), ("b", "2"))}
    with timing.running_workers(commands, threads=1) as workers:
        answers = timing.work_in_turns(workers, "train", [5, 6])
        assert asked == [("b", "train 5"), ("a", "train 5"), ("a", "train 6"), ("b", "train 6")]
        assert answers == {name: [{"tokens": 5}, {"tokens": 6}] for name in "ab"}
        for name, error in (("a", AttemptFailedError), ("b", UserError)):
            with pytest.raises(error, match=f"{name}: its process ended with status"):
                timing.work_in_turns({name: workers[name]}, "train", [9])
    assert all(worker.process.poll() is not None for worker in workers.values())


def test_a_worker_measures_its_time_and_memory(load):
    worker, kept = load("fairseq_worker"), []
    gc.collect()  # else what other tests left could be freed between the requests
    system = SimpleNamespace(train=lambda number: kept.append(bytes(range(256)) * number * 2**12) or number)
    before, trained, after = (
        worker.answer(system, *request) for request in (("memory", 0), ("train", 400), ("memory", 0))
    )
    assert trained["tokens"] == 400 and trained["seconds"] > 0
    assert after["peak"] - before["held"] > 300 * 2**20
