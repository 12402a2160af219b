"""Verify and time the Hopper kernels: python benchmarks/gpu/hopper/measure.py OUT [--cache CACHE].

A wrong barrier makes a kernel hang for ever, so the kernels run in a process that is killed with its process group at a
time limit. OUT/hopper.json has all results and is rewritten after each job. OUT/hopper.md has
the table, which is printed last. With --precompile, a machine without a GPU compiles the kernels for one that has the
same Triton and the same files:

    python benchmarks/gpu/hopper/measure.py --precompile CACHE      # without a GPU
    python benchmarks/gpu/hopper/measure.py OUT --cache CACHE       # on an H100 or H200
    python benchmarks/gpu/hopper/measure.py OUT --tiny              # stand-ins for kernels, without a GPU
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from jobs import CACHE_SETTINGS, JOBS, PROBE, STAND_INS, Job
from report import make_report

WORKER = Path(__file__).with_name("worker.py")
START_LIMIT = 60
"""Seconds in which a process must import PyTorch, and compile its first kernel if the cache does not have it."""


def main() -> int:
    """Measure, and return the exit status."""
    args = parse_arguments()
    if args.precompile:
        from precompile import precompile  # needs PyTorch and Triton

        precompile(args.precompile)
        return 0
    if args.cache and not args.cache.is_dir():
        return fail(f"{args.cache}: no such folder. Fill it with --precompile")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the running process is killed, too
    deadline = time.monotonic() + args.budget
    versions: dict[str, Any] = {"card": "none, these are stand-ins that test measure.py"}
    if not args.tiny:
        *_, (probe,) = run_all([PROBE], args.cache, args.limit, deadline)
        versions = probe["results"][0] if probe["status"] == "ok" else {}
        if versions.get("capability") != [9, 0]:
            found = versions.get("card") or probe["status"].replace("ok", "no GPU")
            return fail(
                f"a Hopper GPU (compute capability 9.0) is needed, found: {found}. Use an H100 or H200, or --tiny"
            )
    args.out.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    for outcomes in run_all(STAND_INS if args.tiny else JOBS, args.cache, args.limit, deadline):
        last = outcomes[-1]
        print(
            f"{time.monotonic() - start:5.1f} s: {last['kernel']}, {last['config']}: {last['status']}", file=sys.stderr
        )
        write_atomically(args.out / "hopper.json", json.dumps(versions | {"jobs": outcomes}, indent=1) + "\n")
    report = make_report(versions, outcomes)
    write_atomically(args.out / "hopper.md", report)
    print(report, end="")
    return 0


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", metavar="OUT", type=Path, nargs="?", help="folder for hopper.json and hopper.md")
    parser.add_argument("--cache", type=Path, help="Triton's cache, filled by --precompile")
    parser.add_argument("--precompile", metavar="CACHE", type=Path, help="only fill this cache; needs no GPU")
    parser.add_argument("--tiny", action="store_true", help="run stand-ins instead of kernels; needs no GPU")
    parser.add_argument("--limit", type=float, default=20, help="seconds for a job (%(default)s)")
    parser.add_argument("--budget", type=float, default=100, help="seconds for all processes (%(default)s)")
    args = parser.parse_args()
    if not (args.out or args.precompile):
        parser.error("name a folder for the results, OUT")
    return args


def run_all(jobs: list[Job], cache: Path | None, limit: float, deadline: float) -> Iterator[list[dict[str, Any]]]:
    """Run jobs, and yield the outcomes so far whenever another one is known.

    A process does one job after another, because importing PyTorch takes long. If it hangs or fails, another one goes
    on after the job that it was doing. An outcome has a job's kernel, config, status and results. The status is "ok",
    "hung", "failed: …" or "not reached", which is also that of a job that is cut off at `deadline`.
    """
    outcomes: list[dict[str, Any]] = []
    while len(outcomes) < len(jobs) and time.monotonic() < deadline:
        for new in run_process(jobs[len(outcomes) :], cache, limit, deadline):
            outcomes.append(new)
            yield outcomes
    yield outcomes + [outcome_of(job, "not reached", []) for job in jobs[len(outcomes) :]]


def run_process(jobs: list[Job], cache: Path | None, limit: float, deadline: float) -> Iterator[dict[str, Any]]:
    """Run jobs in one process until one does not end well, and yield their outcomes."""
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [sys.executable, WORKER, json.dumps([asdict(job) for job in jobs])],
            cwd=cache, env=os.environ | (CACHE_SETTINGS if cache else {}), stdout=output, stderr=messages,
            start_new_session=True,
        )  # fmt: skip
        try:
            for number, job in enumerate(jobs):
                seconds = job.patience * limit + (START_LIMIT if number == 0 else 0)
                status = wait(process, output, number, seconds, deadline)
                if status != "ok":
                    break
                yield outcome_of(job, status, results_of(output)[number])
        finally:
            if process.poll() is None and status != "ok":
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)  # the driver can take a while to end a kernel
        if status != "ok":
            results = results_of(output)[number]
            if results and "error" in results[-1]:
                status = f"failed: {results.pop()['error']}"
            messages.seek(0)
            log = messages.read().decode(errors="replace")[-3000:]
            yield outcome_of(job, status, results) | {"messages": log}


def outcome_of(job: Job, status: str, results: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what the report needs."""
    return {"kernel": job.kernel, "config": job.config, "status": status, "results": results}


def results_of(output: IO[bytes]) -> list[list[dict[str, Any]]]:
    """Return the results of each job that has ended, and of the one after it."""
    position = output.tell()
    output.seek(0)
    lines = [json.loads(line) for line in output.read().split(b"\n")[:-1] if line.startswith(b"{")]
    output.seek(position)
    results: list[list[dict[str, Any]]] = [[]]
    for line in lines:
        if "end" in line:
            results.append([])
        else:
            results[-1].append(line)
    return results


def wait(process: subprocess.Popen[bytes], output: IO[bytes], number: int, limit: float, deadline: float) -> str:
    """Wait until a process has ended a job or has no time left, and return the job's status."""
    end = time.monotonic() + limit
    while True:
        is_over = process.poll() is not None  # before its output is read
        if len(results_of(output)) > number + 1:
            return "ok"
        if is_over:
            return f"failed: exit status {process.returncode}"
        now = time.monotonic()
        if now >= deadline:
            return "not reached"
        if now >= end:
            return "hung"
        time.sleep(0.05)


def fail(message: str) -> int:
    """Print why measuring is not possible, and return the exit status for that."""
    print(f"relumt: error: {message}", file=sys.stderr)
    return 2


def write_atomically(path: Path, text: str) -> None:
    """Write a file that a reader finds complete or not at all."""
    temporary = path.with_name(f"{path.name}.unfinished")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


if __name__ == "__main__":
    sys.exit(main())
