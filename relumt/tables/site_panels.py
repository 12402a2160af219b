"""Figures with one panel per attention site and one legend for all."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SITE_TITLES = {
    "encoder": "Encoder self-attention",
    "decoder": "Decoder self-attention",
    "cross": "Cross-attention",
}


@dataclass(frozen=True)
class SitePanels:
    """A figure with a panel per site.

    Attributes:
        figure: the figure.
        axes: its panels by site.
        legend: one line for each label in the figure.
    """

    figure: "Figure"
    axes: dict[str, Any]
    legend: dict[str, Any] = field(default_factory=dict)

    def draw(self, site: str, label: str, x: Sequence[float], y: Sequence[float], color: str, style: str = "-") -> None:
        """Draw a curve in the panel of a site."""
        (self.legend[label],) = self.axes[site].plot(x, y, style, marker=".", color=color)

    def finish(self, x_label: str, y_label: str) -> "Figure":
        """Write the labels and the legend; return the figure."""
        for site, ax in self.axes.items():
            ax.set(title=SITE_TITLES[site], xlabel=x_label)
        next(iter(self.axes.values())).set_ylabel(y_label)
        self.figure.legend(
            self.legend.values(), self.legend.keys(), loc="outside right upper", fontsize=7, handlelength=4
        )
        return self.figure


def make_panels(sites: Sequence[str]) -> SitePanels:
    """Return a figure with an empty panel for each site."""
    from relumt.analysis.plots import Figure  # matplotlib is optional

    figure = Figure(figsize=(2 + 3.6 * len(sites), 3.6), layout="constrained")
    panels = figure.subplots(1, len(sites), sharey=True, squeeze=False)[0]
    return SitePanels(figure, dict(zip(sites, panels, strict=True)))
