"use strict";
const NARROW = 640;  // pixels; below, the panels of a figure stand below each other

/** Stack the panels of a figure, which Plotly's layout has side by side, and put the legend below them. */
function stack(layout) {
  const panels = layout.annotations.length, height = 250;
  layout.annotations.forEach((title, number) => {
    const suffix = number ? number + 1 : "", top = 1 - number / panels;
    Object.assign(layout[`xaxis${suffix}`], {domain: [0, 1]});
    Object.assign(layout[`yaxis${suffix}`], {domain: [top - 0.66 / panels, top], showticklabels: true, title: layout.yaxis.title});
    Object.assign(title, {x: 0.5, y: top});
  });
  layout.height = panels * height + 120;
  layout.legend = {orientation: "h", y: -0.04, yanchor: "top"};
}

for (const div of document.querySelectorAll(".figure")) {
  const figure = JSON.parse(document.getElementById(div.id.replace("figure-", "data-")).textContent);
  if (div.clientWidth < NARROW) stack(figure.layout);
  // One button, which only appears while the pointer is over a figure: toolbars cover titles and legends.
  Plotly.newPlot(div, figure.data, figure.layout, {responsive: true, displaylogo: false, modeBarButtons: [["toImage"]]});
}
