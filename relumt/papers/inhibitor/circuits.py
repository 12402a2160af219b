"""Circuits of encrypted attention, and the script that compiles and times them with Concrete.

    Inhibitor      H_id = Σ_j (v_jd − Σ_c |q_ic − k_jc|)⁺      [IN] Eq. 3–4 with α = 0 and γ in the scale of v
    dot product    Σ_j w_ij v_jd                               w_ij in place of softmax: see `dot_product`

`PYTHON circuits.py LENGTH REPETITIONS` runs in an environment that has Concrete and NumPy 1, but not relumt: this file
imports nothing of relumt. It prints one JSON object; the first run of each circuit is a warm-up, which is not timed:

    {"inhibitor": {"bootstraps": 16, …, "cpu_seconds": [0.7, …]}, "dot_product": {…},
     "runs": [["inhibitor", [q, k, v], output], …], "versions": {"python": "3.11.2", …}}

The exit status is 2 if there is no Concrete.

Shapes: q, k, v and output [n, DIM], integers; queries i, keys j.
"""

import json
import os
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

DIM = 2
"""Components of queries, keys and values, as in [IN] Table 3."""
MAX_INPUT = 3
"""Queries, keys and values are integers from −MAX_INPUT to MAX_INPUT."""
SCORE_STEP = 0.1
"""What one unit of an integer score q·k stands for, the factor 1/√DIM included."""
MAX_EXP = 15
"""Exponentials are integers from 1 to MAX_EXP."""
MAX_WEIGHT = 12
"""A softmax weight of 1 is the integer MAX_WEIGHT."""
MAX_SCORE = DIM * MAX_INPUT**2
PRODUCT_BITS = 5
"""Bits of w + v and w − v, with the sign: Concrete looks up their squares for a product of w and v. By itself it
reserves fewer, without a message, and decrypted products are then wrong."""
OUTPUT_BITS = 7
"""Bits of sums of weighted values, with the sign; the examples for Concrete do not reach the largest."""

SEED = 1
"""Seed of the random inputs."""

Array = Any
"""A NumPy array, or Concrete's tracer that stands for one."""
Table = Callable[[Array], Array]


class Operations(NamedTuple):
    """What NumPy lacks.

    Attributes:
        lookup: turns a function of integers into a table lookup, one programmable bootstrap per element.
        with_bits: returns its first argument and reserves `bit_width` bits for it.
    """

    lookup: Callable[[Table], Table]
    with_bits: Callable[..., Array]


PLAIN = Operations(lambda function: function, lambda x, *, bit_width: x)
"""The operations on integers that are not encrypted."""


def inhibitor(q: Array, k: Array, v: Array, operations: Operations) -> Array:
    """Return H_id = Σ_j (v_jd − Σ_c |q_ic − k_jc|)⁺."""
    n = q.shape[0]
    distance = np.sum(np.abs(q.reshape((n, 1, DIM)) - k.reshape((1, n, DIM))), axis=2)
    # [1, n, DIM] − [n, n, 1] -> [n, n, DIM]
    inhibited = np.maximum(v.reshape((1, n, DIM)) - distance.reshape((n, n, 1)), 0)
    return np.sum(inhibited, axis=1)


def dot_product(q: Array, k: Array, v: Array, operations: Operations) -> Array:
    """Return Σ_j w_ij v_jd, where w_ij stands in for MAX_WEIGHT · softmax_j(SCORE_STEP · q_i·k_j).

    Three tables replace softmax: w_ij = weight(s_ij − log_sum(Σ_j exp(s_ij))).
    """
    n = q.shape[0]
    lookup = operations.lookup
    scores = q @ k.T
    log_sums = lookup(lambda sums: log_sum_table(sums, n))(np.sum(lookup(exp_table)(scores), axis=1))
    weights = lookup(lambda centered: weight_table(centered, n))(scores - log_sums.reshape((n, 1)))
    weights = operations.with_bits(weights, bit_width=PRODUCT_BITS)
    return operations.with_bits(weights @ v, bit_width=OUTPUT_BITS)


CIRCUITS = {"inhibitor": inhibitor, "dot product": dot_product}
"""Attention -> circuit; the keys are rows of [IN] Table 3 in papers.json."""


def exp_table(scores: Array) -> Array:
    """Return round(MAX_EXP · exp(SCORE_STEP · (score − MAX_SCORE))), at least 1 so that every sum has a logarithm."""
    return np.maximum(1, np.round(MAX_EXP * np.exp(SCORE_STEP * (scores - MAX_SCORE)))).astype(np.int64)


def log_sum_table(sums: Array, n: int) -> Array:
    """Return the logarithms of sums of exponentials in units of scores, minus `center(n)`."""
    return log_sum(sums) - center(n)


def log_sum(sums: Array) -> Array:
    """Return the logarithms of sums of exponentials, in units of scores."""
    positive = np.maximum(sums, 1)  # Concrete also computes entries of the table that no sum reaches
    return np.round(MAX_SCORE + np.log(positive / MAX_EXP) / SCORE_STEP).astype(np.int64)


def center(n: int) -> int:
    """Return what is added to differences of scores and logarithms so that they fit into 6 bits with a sign."""
    largest = log_sum(np.array(1 + (n - 1) * MAX_EXP))
    return (MAX_SCORE + int(largest)) // 2


def weight_table(centered: Array, n: int) -> Array:
    """Return the integer weights of differences of scores and logarithms to which `center(n)` was added."""
    weights = np.round(MAX_WEIGHT * np.exp(SCORE_STEP * (np.asarray(centered, dtype=np.float64) - center(n))))
    return np.minimum(MAX_WEIGHT, weights).astype(np.int64)


def draw_inputs(generator: np.random.Generator, n: int) -> tuple[Array, ...]:
    """Return uniformly distributed q, k and v."""
    return tuple(generator.integers(-MAX_INPUT, MAX_INPUT + 1, (n, DIM)) for _ in range(3))


def example_inputs(n: int) -> list[tuple[Array, ...]]:
    """Return inputs that make every intermediate value as small and as large as it can become.

    Concrete chooses bit widths by the values that it meets in these examples.
    """
    generator = np.random.default_rng(0)
    examples = [draw_inputs(generator, n) for _ in range(300)]
    full = np.full((n, DIM), MAX_INPUT)
    first = full.copy()
    first[1:] = -MAX_INPUT  # one key that differs from all others
    for q in (full, -full):
        for k in (full, -full, first, -first):
            examples += [(q, k, full), (q, k, -full)]
    return examples


def compile_circuit(attention: str, n: int) -> Any:
    """Return Concrete's circuit, for one thread."""
    from concrete import fhe

    operations = Operations(fhe.univariate, fhe.hint)
    configuration = fhe.Configuration(loop_parallelize=False, dataflow_parallelize=False)
    compiler = fhe.Compiler(lambda q, k, v: CIRCUITS[attention](q, k, v, operations), dict.fromkeys("qkv", "encrypted"))
    return compiler.compile(example_inputs(n), configuration)


@dataclass(frozen=True)
class MeasuredCircuit:
    """A circuit and its times.

    Attributes:
        bootstraps: programmable bootstraps of one run.
        max_bits: bits of the widest integer.
        error_probability: that any bootstrap of a run gives a wrong result.
        complexity: cost of one run that Concrete's optimizer estimates, without a unit.
        key_bytes: size of the keys that the server needs.
        compile_cpu_seconds, keygen_cpu_seconds: for compilation, and for the generation of keys.
        cpu_seconds: time of each run on encrypted inputs, without encryption and decryption.
    """

    bootstraps: int
    max_bits: int
    error_probability: float
    complexity: float
    key_bytes: int
    compile_cpu_seconds: float
    keygen_cpu_seconds: float
    cpu_seconds: list[float]


def prepare_circuit(attention: str, n: int) -> tuple[Any, MeasuredCircuit]:
    """Compile a circuit and make its keys; return it and what it consists of."""
    start = time.process_time()
    circuit = compile_circuit(attention, n)
    compiled = time.process_time()
    circuit.keygen()
    return circuit, MeasuredCircuit(
        circuit.programmable_bootstrap_count,
        circuit.graph.maximum_integer_bit_width(),
        circuit.global_p_error,
        circuit.complexity,
        circuit.size_of_bootstrap_keys + circuit.size_of_keyswitch_keys,
        compiled - start,
        time.process_time() - compiled,
        [],
    )


def main(n: int, repetitions: int) -> None:
    """Compile both circuits, then run them in alternation on the same inputs."""
    if not find_spec("concrete"):
        sys.exit(2)
    stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # whatever else is printed goes to stderr
    circuits = {attention: prepare_circuit(attention, n) for attention in CIRCUITS}
    generator = np.random.default_rng(SEED)
    runs = []
    for repetition in range(repetitions + 1):
        inputs = draw_inputs(generator, n)
        for attention in list(CIRCUITS)[:: 1 if repetition % 2 else -1]:
            circuit, measured = circuits[attention]
            encrypted = circuit.encrypt(*inputs)
            start = time.process_time()
            output = circuit.run(*encrypted)
            seconds = time.process_time() - start
            print(f"n = {n}, {attention}: run {repetition} took {seconds:.2f} s of CPU time", file=sys.stderr)
            if repetition:
                measured.cpu_seconds.append(seconds)
            runs.append((attention, [x.tolist() for x in inputs], circuit.decrypt(output).tolist()))
    versions = {"python": platform.python_version()} | {name: version(name) for name in ("concrete-python", "numpy")}
    found = {attention.replace(" ", "_"): asdict(measured) for attention, (_, measured) in circuits.items()}
    json.dump(found | {"runs": runs, "versions": versions}, stdout)
    stdout.flush()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
