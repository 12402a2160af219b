"""Do jobs of `measure.py`, one after another: python worker.py JOBS, with a list of `Job` as JSON.

Each result becomes a line of JSON on stdout at once, and so does the end of each job. The first error ends the process.
"""

import importlib
import json
import sys
import traceback

from jobs import Job


def main() -> int:
    """Print the results of the jobs, and {"error": …} if one fails."""
    for values in json.loads(sys.argv[1]):
        job = Job(**values)
        try:
            for result in importlib.import_module(job.module).run(job):
                print(json.dumps(result), flush=True)
        except Exception as error:
            traceback.print_exc()
            print(json.dumps({"error": traceback.format_exception_only(error)[0].splitlines()[0]}), flush=True)
            return 1
        print(json.dumps({"end": job.config}), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
