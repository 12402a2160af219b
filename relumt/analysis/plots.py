"""Plots of an analysis, each as PNG and SVG."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from relumt.atomic_output import atomic_file
from relumt.errors import UserError, printable
from relumt.feedforward import FEEDFORWARDS
from relumt.options import SITES
from relumt.runs.analysis_record import AttentionMetrics, CheckpointAnalysis, PerHead, mean_over_heads

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise UserError(f"plots need {error.name}; run pip install '.[report]' in the checkout") from None

PLOT_FORMATS = ("png", "svg")

SCORE_RANGE = (-4.0, 4.0)
"""Range of scores over which activation functions are drawn."""

MEASURES = {"sparsity": "sparsity", "null_rate": "null rate", "entropy": "entropy (nats)"}
"""Measures of attention and their axis labels."""


def plain_text(text: str) -> str:
    """Return a label for which matplotlib draws exactly this text: no mathematics between $, no control characters."""
    return printable(text).replace("$", r"\$")


def save_figure(figure: Figure, out: Path, name: str) -> None:
    """Write a figure to OUT/NAME.png and OUT/NAME.svg."""
    for extension in PLOT_FORMATS:
        with atomic_file(out / f"{name}.{extension}") as unfinished:
            figure.savefig(unfinished, dpi=150, format=extension)


def remove_figure(out: Path, name: str) -> None:
    """Remove what an earlier analysis left of a figure that the present one does not have."""
    for extension in PLOT_FORMATS:
        (out / f"{name}.{extension}").unlink(missing_ok=True)


def plot_activations(analyses: Sequence[CheckpointAnalysis], out: Path) -> None:
    """Write activations.png, the learned function of every layer, and parameters.png, the learned parameters by layer.

    Checkpoints without trained activations are left out; without any, earlier plots are removed.
    """
    analyses = [analysis for analysis in analyses if analysis.activations]
    if not analyses:
        for name in ("activations", "parameters"):
            remove_figure(out, name)
        return
    curves = Figure(figsize=(9, 3.6 * len(analyses)), layout="constrained")
    parameters = Figure(figsize=(9, 3.6 * len(analyses)), layout="constrained")
    curve_axes = curves.subplots(len(analyses), 2, sharex=True, sharey="row", squeeze=False)
    parameter_axes = parameters.subplots(len(analyses), 1, squeeze=False)
    for analysis, axes, (parameter_ax,) in zip(analyses, curve_axes, parameter_axes, strict=True):
        for side, ax in zip(("encoder", "decoder"), axes, strict=True):
            _draw_curves(ax, {name: v for name, v in analysis.activations.items() if name.startswith(side)})
            ax.set_title(plain_text(f"{side}, {analysis.path}"), fontsize=8, wrap=True)
        _draw_parameters(parameter_ax, analysis.activations)
        parameter_ax.set_title(plain_text(analysis.path), fontsize=8, wrap=True)
    save_figure(curves, out, "activations")
    save_figure(parameters, out, "parameters")


def _draw_curves(ax: Any, layers: Mapping[str, dict[str, float]]) -> None:
    x = torch.linspace(*SCORE_RANGE, 401)
    for number, (name, parameters) in enumerate(layers.items()):
        with torch.no_grad():
            ax.plot(x, build_activation(parameters)(x), label=name.split(".")[-1], color=f"C{number}")
    ax.set(xlabel="score", ylabel="activation")
    if layers:
        ax.legend(title="layer", fontsize=7)


def _draw_parameters(ax: Any, layers: Mapping[str, dict[str, float]]) -> None:
    for name in sorted({name for parameters in layers.values() for name in parameters}):
        # The encoder's activation can have other parameters than the decoder's.
        ax.plot(range(len(layers)), [p.get(name, math.nan) for p in layers.values()], marker="o", label=name)
    ax.set_xticks(range(len(layers)), [name.replace(".layers.", " ") for name in layers], rotation=30, fontsize=8)
    ax.set_ylabel("learned value")
    ax.legend(fontsize=8)


def build_activation(parameters: Mapping[str, float]) -> torch.nn.Module:
    """Return the registered activation function that has parameters of these names, with these values."""
    for spec in FEEDFORWARDS.values():
        factory = spec().activation
        activation = factory() if factory else torch.nn.Identity()
        if parameters.keys() == dict(activation.named_parameters()).keys():
            activation.load_state_dict({name: torch.tensor([value]) for name, value in parameters.items()})
            return activation
    raise UserError(f"no activation function of this version has the parameters {', '.join(parameters)}")


def plot_attention(analyses: Sequence[CheckpointAnalysis], out: Path) -> None:
    """Write attention.png: sparsity, null rate and entropy by layer, one column per site, one line per checkpoint.

    Shading shows the range over heads; dashed lines are null rates with shuffled targets. Without attention weights in
    any checkpoint, an earlier plot is removed.
    """
    if not any(layer.has_weights for analysis in analyses for layer in analysis.attentions()):
        remove_figure(out, "attention")
        return
    figure = Figure(figsize=(10, 8), layout="constrained")
    axes = figure.subplots(len(MEASURES), len(SITES), sharex="col", sharey="row")
    for row, (measure, label) in zip(axes, MEASURES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, site in zip(row, SITES, strict=True):
            for number, analysis in enumerate(analyses):
                _draw_layers(ax, analysis.attentions(site), measure, f"C{number}", plain_text(analysis.name))
    for ax, site in zip(axes[0], SITES, strict=True):
        ax.set_title(site)
    for ax in axes[-1]:
        ax.set_xlabel("layer")
    axes[0][-1].legend(fontsize=7)
    save_figure(figure, out, "attention")


def _draw_layers(ax: Any, layers: Sequence[AttentionMetrics], measure: str, color: str, label: str) -> None:
    heads: dict[int, PerHead] = {
        number: values for number, layer in enumerate(layers, start=1) if (values := getattr(layer, measure))
    }
    if not heads:
        return
    ax.plot(list(heads), [mean_over_heads(values) for values in heads.values()], marker="o", color=color, label=label)
    lowest, highest = ([bound(x for x in values if x is not None) for values in heads.values()] for bound in (min, max))
    ax.fill_between(list(heads), lowest, highest, color=color, alpha=0.15)
    shuffled = {number: layers[number - 1].null_rate_shuffled for number in heads}
    if measure == "null_rate" and all(shuffled.values()):
        ax.plot(list(shuffled), [mean_over_heads(values) for values in shuffled.values()], linestyle="--", color=color)
    ax.set_xticks(range(1, len(layers) + 1))
