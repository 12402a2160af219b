"""Attacks: invalid, damaged and malicious input, faults and signals, by kind.

Every attack ends with exit status 0, 1 or 2 and, unless it is 0, with one line on stderr that starts with
"relumt: error: ". Nothing from a file is executed, nothing hangs, no process is left behind, and no file is lost or
changed by a refused command.

A test module names its kind with `pytestmark = pytest.mark.attack("corpora")`; `attack` is the fixture to use. `pytest
tests/attacks` prints a table of all attacks by kind.
"""
