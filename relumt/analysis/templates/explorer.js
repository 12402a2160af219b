"use strict";
const models = JSON.parse(document.getElementById("maps").textContent);
const byId = (id) => document.getElementById(id);
const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
const SITES = {encoder: "encoder", decoder: "decoder", cross: "cross (decoder → source)"};
const ORIGINS = {reference: "reference", translation: "own translation"};
const SIDES = models.length > 1 || hasBothOrigins() ? ["left", "right"] : ["left"];
const ALL = "all";
// The palest color is clearly not white, so that white can mean exactly 0. Red is for negative weights.
const BLUES = [[222, 235, 247], [8, 48, 107]], REDS = [[254, 224, 210], [103, 0, 13]], HIDDEN = [240, 242, 245];
const CELL = {smallest: 9, largest: 26};
const LABEL = {font: 12, longest: 150, slope: Math.sin(50 * Math.PI / 180)};

function hasBothOrigins() {
  return models.length === 1 && new Set(models[0].sentences.map((s) => s.origin)).size > 1;
}

function fill(select, options) {
  const previous = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => String(value) === previous)) select.value = previous;
}

// ---- Data -----------------------------------------------------------------------------------------------------------

const decoded = new WeakMap();

/** Numbers and shape [heads, queries, keys] of an encoded map. */
function decode(map) {
  if (!decoded.has(map)) {
    const bytes = Uint8Array.from(atob(map.data), (character) => character.charCodeAt(0));
    // A bfloat16 is the upper half of a float32.
    const bits = Uint32Array.from(new Uint16Array(bytes.buffer), (code) => code << 16);
    decoded.set(map, {values: new Float32Array(bits.buffer), shape: map.shape});
  }
  return decoded.get(map);
}

/** Rows of numbers of one head, or of all heads together; null if the map does not exist. */
function selectRows(attention, kind, head) {
  if (!attention || !attention[kind]) return null;
  const joint = kind === "norms" && head === ALL;
  const {values, shape: [heads, queries, keys]} = decode(joint ? attention.joint_norms : attention[kind]);
  const used = joint ? [0] : head === ALL ? [...Array(heads).keys()] : [Number(head)];
  if (used.some((number) => number >= heads)) return null;
  return Array.from({length: queries}, (_, i) => Array.from({length: keys}, (_, j) =>
    used.reduce((sum, number) => sum + values[(number * queries + i) * keys + j], 0) / used.length));
}

function selectedSentence(side) {
  const model = models[byId(side).value];
  const origin = hasBothOrigins() && side === "right" ? "translation" : byId("origin").value;
  const found = model.sentences.filter((s) => String(s.index) === byId("sentence").value);
  return found.find((s) => s.origin === origin);
}

const selectLayers = (sentence) => sentence ? sentence.maps.filter((map) => map.site === byId("site").value) : [];
const isNull = (row) => row.every((value) => value === 0);
const findLargest = (rows) => Math.max(0, ...rows.flat().map(Math.abs));
/** Two significant digits, which the 8 bits of an encoded number are enough for. */
const format = (value) => String(Number(value.toPrecision(2)));

// ---- Drawing --------------------------------------------------------------------------------------------------------

/** Whether causal attention hides key j from query i. */
const isHidden = (i, j) => byId("site").value === "decoder" && j > i;

function color(value, largest, i, j) {
  if (isHidden(i, j)) return HIDDEN;
  if (value === 0) return [255, 255, 255];
  const [pale, dark] = value < 0 ? REDS : BLUES, share = Math.min(1, Math.abs(value) / largest);
  return pale.map((channel, index) => Math.round(channel + share * (dark[index] - channel)));
}

/** Width in pixels of the widest of these labels; longer ones than LABEL.longest are cut. */
function widest(labels) {
  const context = create("canvas").getContext("2d");
  context.font = `${LABEL.font}px system-ui, sans-serif`;
  return Math.min(LABEL.longest, Math.ceil(Math.max(0, ...labels.map((label) => context.measureText(label).width))));
}

/** Paint one pixel per weight; style sheets enlarge the canvas. */
function paint(canvas, rows) {
  const largest = findLargest(rows), context = canvas.getContext("2d");
  canvas.width = rows[0].length;
  canvas.height = rows.length;
  const image = context.createImageData(canvas.width, canvas.height);
  rows.forEach((row, i) => row.forEach((value, j) => {
    image.data.set([...color(value, largest, i, j), 255], 4 * (i * canvas.width + j));
  }));
  context.putImageData(image, 0, 0);
}

function drawHeads(side, layers) {
  const box = byId(`heads-${side}`), kind = byId("kind").value;
  const heads = Math.max(0, ...layers.map((layer) => layer.weights.shape[0]));
  const names = [...Array(heads).keys(), ALL];
  box.style.gridTemplateColumns = `3.4rem repeat(${names.length}, minmax(0, ${layers.length > 3 ? 64 : 84}px))`;
  box.replaceChildren(create("div"), ...names.map((name) => create("div", {textContent: name === ALL ? ALL : `head ${name + 1}`})));
  layers.forEach((layer, number) => {
    box.append(create("div", {textContent: `layer ${number + 1}`}));
    for (const name of names) {
      const rows = selectRows(layer, kind, name);
      if (!rows) { box.append(create("div")); continue; }
      const button = create("button", {type: "button", title: `layer ${number + 1}, ${name === ALL ? "all heads" : `head ${name + 1}`}`});
      button.setAttribute("aria-pressed", String(number) === byId("layer").value && String(name) === byId("head").value);
      const canvas = create("canvas");
      paint(canvas, rows);
      button.append(canvas);
      button.addEventListener("click", () => { byId("layer").value = number; byId("head").value = name; refresh(); });
      box.append(button);
    }
  });
}

/** Draw the enlarged map with its tokens, and read out the cell under the pointer. */
function drawMap(side, sentence, attention) {
  const kind = byId("kind").value, head = byId("head").value, site = byId("site").value;
  const rows = selectRows(attention, kind, head), box = byId(`map-${side}`);
  box.replaceChildren();
  byId(`scale-${side}`).replaceChildren();
  byId(`readout-${side}`).textContent = "";
  const message = byId(`none-${side}`);
  message.hidden = Boolean(rows);
  if (!rows) {
    message.textContent = !sentence ? "This model has no map of this sentence."
      : attention && kind === "norms" && !attention.norms ? "Norms are not defined for this attention." : "No map: this attention has no weights, or fewer layers or heads.";
    return;
  }
  const queries = {encoder: sentence.source, decoder: sentence.decoder_input, cross: sentence.target}[site];
  const keys = site === "decoder" ? sentence.decoder_input : sentence.source;
  const left = widest(queries.map((query) => `∅ ${query}`)) + 10, top = Math.ceil(LABEL.slope * widest(keys)) + 16;
  const room = (box.clientWidth || 480) - left - top;
  const cell = Math.max(CELL.smallest, Math.min(CELL.largest, Math.floor(room / Math.max(keys.length, 1))));
  const largest = findLargest(rows), canvas = create("canvas"), context = canvas.getContext("2d"), sharp = 2;
  const width = cell * keys.length, height = cell * queries.length;
  Object.assign(canvas, {width: sharp * width, height: sharp * height});
  Object.assign(canvas.style, {left: `${left}px`, top: `${top}px`, width: `${width}px`, height: `${height}px`});
  context.scale(sharp, sharp);
  context.fillStyle = "#e4e7eb";
  context.fillRect(0, 0, width, height);
  rows.forEach((row, i) => row.forEach((value, j) => {
    context.fillStyle = `rgb(${color(value, largest, i, j)})`;
    context.fillRect(j * cell + 0.5, i * cell + 0.5, cell - 1, cell - 1);
  }));
  const keyLabels = keys.map((key, j) => create("span", {className: "key", textContent: key, title: key}));
  keyLabels.forEach((label, j) => Object.assign(label.style, {
    left: `${left + (j + 0.65) * cell}px`, top: `${top - 15}px`, fontSize: `${Math.min(LABEL.font, cell + 1)}px`}));
  const queryLabels = queries.map((query, i) => create("span", {className: "query", textContent: (isNull(rows[i]) ? "∅ " : "") + query, title: query}));
  queryLabels.forEach((label, i) => Object.assign(label.style, {
    left: 0, width: `${left - 6}px`, top: `${top + i * cell}px`, lineHeight: `${cell}px`, fontSize: `${Math.min(LABEL.font, cell + 1)}px`}));
  box.style.height = `${top + height + 18}px`;
  box.append(canvas, ...keyLabels, ...queryLabels);
  drawScale(side, rows, largest);
  const hint = "Point at a cell for its tokens and values.";
  byId(`readout-${side}`).textContent = hint;
  const weights = selectRows(attention, "weights", head), norms = selectRows(attention, "norms", head);
  const unmark = () => box.querySelectorAll(".marked").forEach((label) => label.classList.remove("marked"));
  canvas.addEventListener("mousemove", (event) => {
    const i = Math.min(queries.length - 1, Math.floor(event.offsetY / cell)), j = Math.min(keys.length - 1, Math.floor(event.offsetX / cell));
    if (i < 0 || j < 0 || isHidden(i, j)) return;
    unmark();
    queryLabels[i].classList.add("marked");
    keyLabels[j].classList.add("marked");
    byId(`readout-${side}`).textContent = describeCell(queries[i], keys[j], weights[i], norms && norms[i], j);
  });
  canvas.addEventListener("mouseleave", () => { unmark(); byId(`readout-${side}`).textContent = hint; });
}

function describeCell(query, key, weights, norms, j) {
  const share = (row) => `${format(100 * row[j] / row.reduce((a, b) => a + b, 0))}% of the row`;
  const parts = (label, row) => isNull(row) ? `${label} 0 (null row)` : `${label} ${format(row[j])}` + (row.some((w) => w < 0) ? "" : `, ${share(row)}`);
  return `${query} → ${key}: ${parts("weight", weights)}${norms ? `; ${parts("norm", norms)}` : ""}`;
}

function drawScale(side, rows, largest) {
  const css = ([r, g, b]) => `rgb(${r}, ${g}, ${b})`, negative = rows.flat().some((value) => value < 0);
  const bar = create("i");
  const stops = [...(negative ? [...REDS].reverse() : []), ...BLUES].map(css);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  const visible = rows.flatMap((row, i) => row.filter((_, j) => !isHidden(i, j)));
  const zeros = visible.filter((value) => value === 0).length / visible.length;
  byId(`scale-${side}`).append(negative ? `−${format(largest)}` : "> 0", bar, format(largest),
                               create("span", {textContent: `· ${(100 * zeros).toFixed(0)}% of the cells are exactly 0`}));
}

// ---- Controls -------------------------------------------------------------------------------------------------------

const join = (tokens) => tokens.filter((token) => token !== "</s>").join(" ").replaceAll("@@ ", "").replaceAll(" ▁", " ").replace(/^▁/, "");

function drawSide(side) {
  const sentence = selectedSentence(side), layers = selectLayers(sentence);
  byId(`source-${side}`).textContent = sentence ? join(sentence.source) : "";
  byId(`origin-${side}`).textContent = sentence ? ORIGINS[sentence.origin] : "";
  byId(`target-${side}`).textContent = sentence ? join(sentence.target) : "";
  drawHeads(side, layers);
  drawMap(side, sentence, layers[byId("layer").value]);
}

function refresh() {
  const layers = SIDES.map((side) => selectLayers(selectedSentence(side)));
  const heads = Math.max(0, ...layers.flat().map((layer) => layer.weights.shape[0]));
  fill(byId("layer"), Array.from({length: Math.max(0, ...layers.map((found) => found.length))}, (_, i) => [i, i + 1]));
  fill(byId("head"), [...Array.from({length: heads}, (_, i) => [i, i + 1]), [ALL, "all"]]);
  SIDES.forEach(drawSide);
}

function start() {
  const everySentence = models.flatMap((model) => model.sentences);
  const origins = [...new Set(everySentence.map((s) => s.origin))];
  fill(byId("sentence"), [...new Map(everySentence.map((s) => [s.index, join(s.source)]))].map(([index, text]) =>
    [index, `${index + 1}: ${text.length > 70 ? `${text.slice(0, 70)}…` : text}`]));
  fill(byId("origin"), origins.map((origin) => [origin, ORIGINS[origin]]));
  byId("origin-label").hidden = origins.length < 2 || hasBothOrigins();
  fill(byId("site"), Object.entries(SITES));
  byId("site").value = "cross";
  byId("panel-right").hidden = SIDES.length < 2;
  byId("panels").classList.toggle("single", SIDES.length < 2);
  for (const side of ["left", "right"]) byId(side).disabled = models.length < 2;
  for (const side of ["left", "right"]) fill(byId(side), models.map((model, index) => [index, model.name]));
  byId("right").value = String(Math.min(1, models.length - 1));
  for (const id of ["sentence", "origin", "site", "kind", "layer", "head", "left", "right"]) byId(id).addEventListener("change", refresh);
  window.addEventListener("resize", refresh);
  refresh();
  byId("layer").value = String(Math.max(0, byId("layer").options.length - 1));
  byId("head").value = ALL;
  refresh();
}

start();
