"""Verify and time the Hopper kernels: python benchmarks/gpu/hopper/measure.py OUT [--cache CACHE].

A wrong barrier makes a kernel hang for ever, so each kernel runs in a process of its own, which is killed with its
process group at a time limit. OUT/hopper.json has all results and is rewritten after each process. OUT/hopper.md has
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
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from jobs import CACHE_SETTINGS, JOBS, PROBE, STAND_INS, Job
from report import make_report

WORKER = Path(__file__).with_name("worker.py")
START_LIMIT = 60
"""Seconds in which a process must import PyTorch, and compile its kernel if the cache does not have it."""


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
        probe = run_job(PROBE, args.cache, args.limit, deadline)
        versions = probe["results"][0] if probe["status"] == "ok" else {}
        if versions.get("capability") != [9, 0]:
            found = versions.get("card") or probe["status"].replace("ok", "no GPU")
            return fail(
                f"a Hopper GPU (compute capability 9.0) is needed, found: {found}. Use an H100 or H200, or --tiny"
            )
    args.out.mkdir(parents=True, exist_ok=True)
    outcomes = []
    for job in STAND_INS if args.tiny else JOBS:
        outcome = run_job(job, args.cache, args.limit, deadline)
        print(f"{job.kernel} {job.label}: {outcome['status']} after {outcome['seconds']} s", file=sys.stderr)
        outcomes.append(outcome)
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
    parser.add_argument("--limit", type=float, default=20, help="seconds for a process once it is ready (%(default)s)")
    parser.add_argument("--budget", type=float, default=170, help="seconds for all processes (%(default)s)")
    args = parser.parse_args()
    if not (args.out or args.precompile):
        parser.error("name a folder for the results, OUT")
    return args


def run_job(job: Job, cache: Path | None, limit: float, deadline: float) -> dict[str, Any]:
    """Run a job in a process of its own; return its kernel, config, status, seconds and results.

    The status is "ok", "hung", "failed: …" or "not reached", which is also the status of a job cut off at `deadline`.
    """
    outcome: dict[str, Any] = {"kernel": job.kernel, "config": job.label, "status": "not reached", "seconds": 0.0}
    start = time.monotonic()
    if start >= deadline:
        return outcome | {"results": []}
    with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as messages:
        process = subprocess.Popen(
            [sys.executable, WORKER, json.dumps(asdict(job))],
            cwd=cache,
            env=os.environ | (CACHE_SETTINGS if cache else {}),
            stdout=output,
            stderr=messages,
            start_new_session=True,
        )
        try:
            outcome["status"] = wait(process, output, limit, deadline)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            with suppress(subprocess.TimeoutExpired):
                process.wait(timeout=10)  # the driver can take a while to end a kernel
        outcome["seconds"] = round(time.monotonic() - start, 1)
        output.seek(0)
        results = [json.loads(line) for line in output if line.startswith(b"{")]
        messages.seek(0)
        log = messages.read().decode(errors="replace")[-3000:]
    if results and "error" in results[-1]:
        outcome["status"] = f"failed: {results.pop()['error']}"
    return outcome | {"results": results} | ({} if outcome["status"] == "ok" else {"messages": log})


def wait(process: subprocess.Popen[bytes], output: IO[bytes], limit: float, deadline: float) -> str:
    """Wait until a process ends or has no time left, and return its status."""
    end = time.monotonic() + START_LIMIT
    is_ready = False
    while process.poll() is None:
        now = time.monotonic()
        if now >= deadline:
            return "not reached"
        if now >= end:
            return "hung" if is_ready else f"failed: not ready after {START_LIMIT} s"
        if not is_ready and os.fstat(output.fileno()).st_size:  # it printed its first result
            is_ready, end = True, now + limit
        time.sleep(0.05)
    return "ok" if process.returncode == 0 else f"failed: exit status {process.returncode}"


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
