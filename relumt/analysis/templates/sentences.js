// ---- Sentences, sorted and filtered by measure ----------------------------------------------------------------------

const EXACT = ["#", "source", "source tokens", "target tokens"];  // the other columns are measures
const sorting = {column: "#", isDescending: false};

/** The model whose measures the table shows: the left one, unless only the right one has weights. */
const measuredModel = () => {
  const side = SIDES.find((some) => selectLayers(selectedSentence(some)).length) || "left";
  return models[byId(side).value];
};

/** The columns of a sentence: its measures are those of the chosen attention. */
function measure(sentence) {
  const layer = selectLayers(sentence)[byId("layer").value], head = headIndex(layer, "weights", byId("head").value);
  const measures = Object.entries(head < 0 ? {} : layer.measures).map(([name, values]) => [name, values[head]]);
  return {"#": sentence.index + 1, "source": sentence.source_text, "source tokens": sentence.source.length,
          "target tokens": sentence.target.length, ...Object.fromEntries(measures)};
}

/** Sentences that pass the filter, in the chosen order; those without the measure come last. */
function listSentences() {
  const all = measuredModel().sentences.filter((s) => s.origin === byId("origin").value).map(measure);
  const [name, lowest, highest] = ["measure", "lowest", "highest"].map((id) => byId(id).value);
  const contained = byId("contains").value.toLowerCase();
  const isWithin = (value) => (lowest === "" || value >= Number(lowest)) && (highest === "" || value <= Number(highest));
  const hasRange = lowest !== "" || highest !== "";
  const shown = all.filter((row) => row.source.toLowerCase().includes(contained)
                                    && (!hasRange || (row[name] != null && isWithin(row[name]))));
  const {column, isDescending} = sorting, isMissing = (row) => row[column] == null;
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b) : a - b;
  shown.sort((a, b) => isMissing(a) || isMissing(b) ? isMissing(a) - isMissing(b)
                                                    : compare(a[column], b[column]) * (isDescending ? -1 : 1));
  return {all, shown};
}

function drawSentences() {
  const {all, shown} = listSentences(), columns = [...new Set(all.flatMap(Object.keys))];
  fill(byId("measure"), columns.filter((name) => name !== "#" && name !== "source").map((name) => [name, name]));
  const current = Number(byId("sentence").value);
  const label = (row) => `${row["#"]}: ${row.source.length > 70 ? `${row.source.slice(0, 70)}…` : row.source}`;
  // The chosen sentence stays, even if the filter leaves it out.
  const kept = shown.some((row) => row["#"] === current + 1) ? [] : all.filter((row) => row["#"] === current + 1);
  fill(byId("sentence"), [...kept, ...shown].map((row) => [row["#"] - 1, label(row)]));
  byId("num-shown").textContent = `${shown.length} of ${all.length} sentences`;
  byId("measured").textContent = `Means over the queries of ${measuredModel().name}, ${SITES[byId("site").value]}, `
    + `layer ${Number(byId("layer").value) + 1}, ${byId("head").value === ALL ? "mean over heads" : nameHead(byId("head").value)}. `
    + "Entropy is in nats; the largest share is that of the key with the largest weight. Click a column to sort by it.";
  const header = create("tr");
  for (const name of columns) {
    const button = create("button", {type: "button", textContent: name + (sorting.column !== name ? "" : sorting.isDescending ? " ▼" : " ▲")});
    button.addEventListener("click", () => {
      Object.assign(sorting, {isDescending: sorting.column === name && !sorting.isDescending, column: name});
      refresh();
    });
    const cell = create("th", {className: name === "source" ? "text" : ""});
    cell.append(button);
    header.append(cell);
  }
  byId("table").replaceChildren(header, ...shown.map((row) => {
    const line = create("tr", {className: row["#"] === current + 1 ? "chosen" : ""});
    line.append(...columns.map((name) => create("td", {
      className: name === "source" ? "text" : "",
      textContent: row[name] == null ? "" : EXACT.includes(name) ? row[name] : row[name].toFixed(3)})));
    line.addEventListener("click", () => choose({sentence: row["#"] - 1}));
    return line;
  }));
}
