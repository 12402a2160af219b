"""Do one job of `measure.py` in a process of its own: python worker.py JOB, with a `Job` as JSON.

Each result becomes a line of JSON on stdout at once. The first one says that the job is ready to use the GPU.
"""

import importlib
import json
import sys
import traceback

from jobs import Job


def main() -> int:
    """Print the results of the job, and {"error": …} if it fails."""
    job = Job(**json.loads(sys.argv[1]))
    try:
        for result in importlib.import_module(job.module).run(job):
            print(json.dumps(result), flush=True)
    except Exception as error:
        traceback.print_exc()
        print(json.dumps({"error": traceback.format_exception_only(error)[0].splitlines()[0]}), flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
