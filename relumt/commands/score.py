"""Score a translated run with another program, for example a neural metric in an environment of its own.

The program reads a JSON object per line (source, translation, reference) and prints a number per line. It may end with
{"score": …, "version": …}. Without --external, the segments are printed. docs/neural_metrics.md has examples.
"""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from relumt.arguments import positive_integer
from relumt.process import print_in_utf8

TIME_LIMIT = 3600


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments: the run, and the program that scores it."""
    parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run that is translated and scored")
    parser.add_argument("--external", metavar="COMMAND", help="program that scores, and its arguments")
    parser.add_argument("--name", default="external", help="name of the metric in run.json (default: external)")
    parser.add_argument("--subset", default="test", help="the translated subset (default: test)")
    parser.add_argument("--data", type=Path, help="data-bin that was translated (default: that of the run)")
    parser.add_argument(
        "--time-limit",
        type=positive_integer,
        default=TIME_LIMIT,
        metavar="S",
        help="seconds after which the program is killed (default: %(default)s)",
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the score as JSON, or the segments as JSON lines."""
    import msgspec

    from relumt.runs.external_scores import add_external_score, segments_of_run

    if arguments.external is None:
        print_in_utf8()
        for segment in segments_of_run(arguments.run, arguments.subset, arguments.data):
            print(msgspec.json.encode(segment).decode())
        return
    score = add_external_score(
        arguments.run, arguments.subset, arguments.data, arguments.name, arguments.external, arguments.time_limit
    )
    result = {"run": str(arguments.run), "subset": arguments.subset, "name": arguments.name}
    print(json.dumps(result | asdict(score), indent=2, ensure_ascii=False))
