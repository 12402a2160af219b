"""Plots of what was measured, each as PNG and SVG."""

import math
from pathlib import Path
from typing import Any

import torch

from relumt.atomic_output import atomic_file
from relumt.errors import UserError
from relumt.feedforward import FEEDFORWARDS
from relumt.options import SITES

try:
    from matplotlib.figure import Figure
except ModuleNotFoundError as error:
    raise UserError(f"plots need {error.name}; pip install 'relumt[report]'") from None

RANGE = (-4.0, 4.0)
"""Of the scores for which an activation is drawn."""


def save(figure: Figure, out: Path, name: str) -> None:
    """Write a figure to OUT/NAME.png and OUT/NAME.svg."""
    for kind in ("png", "svg"):
        with atomic_file(out / f"{name}.{kind}") as unfinished:
            figure.savefig(unfinished, dpi=150, format=kind)


def plot_activations(analyses: list[dict[str, Any]], out: Path) -> None:
    """activations.png: the learnt curve of every layer; parameters.png: the learnt numbers by layer.

    analyses: of `relumt analyze`, those without trained activations are left out; a row of panels each.
    """
    analyses = [analysis for analysis in analyses if analysis["activations"]]
    curves = Figure(figsize=(9, 3.6 * len(analyses)), layout="constrained")
    numbers = Figure(figsize=(9, 3.6 * len(analyses)), layout="constrained")
    rows = curves.subplots(len(analyses), 2, sharex=True, sharey="row", squeeze=False)
    of_numbers = numbers.subplots(len(analyses), 1, squeeze=False)[:, 0]
    for analysis, panels, panel in zip(analyses, rows, of_numbers, strict=True):
        for side, ax in zip(("encoder", "decoder"), panels, strict=True):
            _draw_curves(ax, {k: v for k, v in analysis["activations"].items() if k.startswith(side)})
            ax.set_title(f"{side}, {analysis['path']}", fontsize=8, wrap=True)
        _draw_parameters(panel, analysis["activations"])
        panel.set_title(analysis["path"], fontsize=8, wrap=True)
    save(curves, out, "activations")
    save(numbers, out, "parameters")


def _draw_curves(ax: Any, layers: dict[str, dict[str, float]]) -> None:
    x = torch.linspace(*RANGE, 401)
    for number, (name, parameters) in enumerate(layers.items()):
        activation = activation_with(parameters)
        with torch.no_grad():
            ax.plot(x, activation(x), label=name.split(".")[-1], color=f"C{number}")
    ax.set(xlabel="score", ylabel="activation")
    if layers:
        ax.legend(title="layer", fontsize=7)


def _draw_parameters(ax: Any, layers: dict[str, dict[str, float]]) -> None:
    for parameter in sorted({parameter for values in layers.values() for parameter in values}):
        learnt = [values.get(parameter, math.nan) for values in layers.values()]  # a side may have another activation
        ax.plot(range(len(layers)), learnt, marker="o", label=parameter)
    ax.set_xticks(range(len(layers)), [name.replace(".layers.", " ") for name in layers], rotation=30, fontsize=8)
    ax.set_ylabel("learnt value")
    ax.legend(fontsize=8)


def activation_with(parameters: dict[str, float]) -> torch.nn.Module:
    """The registered activation whose trained parameters have these names, with these values."""
    for row in FEEDFORWARDS.values():
        made = row().activation
        activation = made() if made else torch.nn.Identity()
        if parameters.keys() == dict(activation.named_parameters()).keys():
            activation.load_state_dict({name: torch.tensor([value]) for name, value in parameters.items()})
            return activation
    raise UserError(f"no activation of this version has the parameters {', '.join(parameters)}")


MEASURES = {"sparsity": "sparsity", "null_rate": "null rate", "entropy": "entropy (nats)"}
"""Measure of an attention → label of its axis."""


def plot_attention(analyses: list[dict[str, Any]], out: Path) -> None:
    """attention.png: sparsity, null rate and entropy by layer, a column a site, a line a checkpoint; shaded: heads.

    The null rate with shuffled targets is dashed. Nothing is drawn where no checkpoint has weights.
    """
    found = [(site, analysis, layers_of(analysis, site)) for site in SITES for analysis in analyses]
    if not any(layers for _, _, layers in found):
        return
    figure = Figure(figsize=(10, 8), layout="constrained")
    panels = figure.subplots(len(MEASURES), len(SITES), sharex="col", sharey="row")
    for row, (measure, label) in zip(panels, MEASURES.items(), strict=True):
        row[0].set_ylabel(label)
        for ax, site in zip(row, SITES, strict=True):
            for number, (_, analysis, layers) in enumerate(one for one in found if one[0] == site):
                _draw_heads(ax, layers, measure, f"C{number}", analysis["name"])
    for ax, site in zip(panels[0], SITES, strict=True):
        ax.set_title(site)
    for ax in panels[-1]:
        ax.set_xlabel("layer")
    panels[0][-1].legend(fontsize=7)
    save(figure, out, "attention")


def layers_of(analysis: dict[str, Any], site: str) -> list[dict[str, Any]]:
    """The measures of a site's attentions, layer by layer; none for those without weights."""
    return [measures for measures in analysis["attention"].values() if measures and measures["site"] == site]


def _draw_heads(ax: Any, layers: list[dict[str, Any]], measure: str, colour: str, label: str) -> None:
    by_layer = [(number, layer[measure]) for number, layer in enumerate(layers, start=1) if layer[measure]]
    if not by_layer:
        return
    numbers, heads = zip(*by_layer, strict=True)
    ax.plot(numbers, [sum(values) / len(values) for values in heads], marker="o", color=colour, label=label)
    ax.fill_between(numbers, [min(x) for x in heads], [max(x) for x in heads], color=colour, alpha=0.15)
    places = range(1, len(layers) + 1)
    shuffled = [layer.get(f"{measure}_shuffled") for layer in layers]
    if all(shuffled):
        ax.plot(places, [sum(x) / len(x) for x in shuffled], linestyle="--", color=colour)
    ax.set_xticks(places)
