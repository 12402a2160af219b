const models = JSON.parse(document.getElementById("maps").textContent);
const byId = (id) => document.getElementById(id);
const SITES = {encoder: "encoder", decoder: "decoder", cross: "cross (decoder → source)"};
const ORIGINS = {reference: "reference", translation: "own translation"};
const SIDES = models.length > 1 || hasBothOrigins() ? ["left", "right"] : ["left"];
const ALL = "all";
const THUMBNAIL = 84;  // pixels
const SMALLEST_REGION = 4;  // tokens
let zoom = null;  // the region that is shown, in tokens; null for the whole map

function hasBothOrigins() {
  return models.length === 1 && new Set(models[0].sentences.map((s) => s.origin)).size > 1;
}

function fill(select, options) {
  const previous = select.value;
  select.replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  if (options.some(([value]) => String(value) === previous)) select.value = previous;
}

// ---- What is chosen -------------------------------------------------------------------------------------------------

function findSentence(side, index) {
  const model = models[byId(side).value];
  const origin = hasBothOrigins() && side === "right" ? "translation" : byId("origin").value;
  return model.sentences.find((s) => s.index === index && s.origin === origin);
}

const selectedSentence = (side) => findSentence(side, Number(byId("sentence").value));
const selectLayers = (sentence) => sentence ? sentence.maps.filter((map) => map.site === byId("site").value) : [];
const countHeads = (layer) => layer.weights.shape[0] - 1;  // the last one stands for all heads together
const nameHead = (head) => head === ALL ? "all heads" : `head ${Number(head) + 1}`;

/** Index of a head in an encoded map, -1 if the map or the head does not exist. */
function headIndex(layer, kind, head) {
  if (!layer || !layer[kind]) return -1;
  return head === ALL ? countHeads(layer) : Number(head) < countHeads(layer) ? Number(head) : -1;
}

// ---- Drawing --------------------------------------------------------------------------------------------------------

const thumbnails = new WeakMap();  // of the encoded maps, because each of a document's costs a walk over all its numbers

function drawThumbnail(map, head, isCausal) {
  if (!thumbnails.has(map)) thumbnails.set(map, []);
  const cache = thumbnails.get(map);
  if (!cache[head]) {
    const matrix = readHead(map, head, isCausal);
    const rows = Math.min(matrix.rows, THUMBNAIL), columns = Math.min(matrix.columns, THUMBNAIL);
    cache[head] = paint(matrix, pool(matrix, whole(matrix), rows, columns), rows, columns);
  }
  const canvas = create("canvas", {width: cache[head].width, height: cache[head].height});
  canvas.getContext("2d").drawImage(cache[head], 0, 0);
  return canvas;
}

function drawHeads(side, layers) {
  const box = byId(`heads-${side}`), kind = byId("kind").value;
  const names = layers.length ? [...Array(Math.max(...layers.map(countHeads))).keys(), ALL] : [];
  box.style.gridTemplateColumns = `3.4rem repeat(${names.length}, minmax(0, ${layers.length > 3 ? 64 : THUMBNAIL}px))`;
  box.replaceChildren(create("div"), ...names.map((name) => create("div", {textContent: name === ALL ? ALL : `head ${name + 1}`})));
  layers.forEach((layer, number) => {
    box.append(create("div", {textContent: `layer ${number + 1}`}));
    for (const name of names) {
      const head = headIndex(layer, kind, name);
      if (head < 0) { box.append(create("div")); continue; }
      const button = create("button", {type: "button", title: `layer ${number + 1}, ${nameHead(name)}`});
      button.setAttribute("aria-pressed", String(number) === byId("layer").value && String(name) === byId("head").value);
      button.append(drawThumbnail(layer[kind], head, layer.site === "decoder"));
      button.addEventListener("click", () => choose({layer: number, head: name}));
      box.append(button);
    }
  });
}

/** The part of a matrix that the zoom shows; a row or column stands for `factor` tokens. */
function zoomedRegion(matrix, factor) {
  if (!zoom) return whole(matrix);
  const clamp = (first, count, all) => {
    const start = Math.min(Math.floor(first / factor), all - 1);
    return [start, Math.max(1, Math.min(Math.ceil(count / factor), all - start))];
  };
  const [top, rows] = clamp(zoom.top, zoom.rows, matrix.rows), [left, columns] = clamp(zoom.left, zoom.columns, matrix.columns);
  return {top, left, rows, columns};
}

/** Draw the enlarged map with its tokens, and read out what is under the pointer. */
function drawEnlarged(side, sentence, layer) {
  const kind = byId("kind").value, site = byId("site").value, head = headIndex(layer, kind, byId("head").value);
  byId(`enlarged-${side}`).hidden = head < 0;
  byId(`none-${side}`).hidden = head >= 0;
  if (head < 0) {
    byId(`none-${side}`).textContent = !sentence ? "This model has no map of this sentence."
      : layer && kind === "norms" && !layer.norms ? "Norms are not defined for this attention." : "No map: this attention has no weights, or fewer layers or heads.";
    return;
  }
  const queries = {encoder: sentence.source, decoder: sentence.decoder_input, cross: sentence.target}[site];
  const keys = site === "decoder" ? sentence.decoder_input : sentence.source;
  const matrix = readHead(layer[kind], head, site === "decoder"), {factor} = layer, box = byId(`map-${side}`);
  const caption = `${models[byId(side).value].name}: ${site}, layer ${Number(byId("layer").value) + 1}, ${nameHead(byId("head").value)}, ${kind}`;
  const drawn = drawMap({matrix, region: zoomedRegion(matrix, factor), queries, keys, factor, caption, width: box.clientWidth || 460});
  box.replaceChildren(drawn.image);
  byId(`measures-${side}`).textContent = Object.entries(layer.measures).map(([name, values]) =>
    values[head] === null ? "" : `${name} ${format(values[head])}${name === "entropy" ? " nats" : ""}`).filter(Boolean).join(" · ")
    + (factor > 1 ? ` · a row or column stands for ${factor} tokens, and a cell for the largest of ${factor * factor} weights` : "");
  const hint = "Point at a cell for its tokens and values; drag to enlarge a part.";
  byId(`readout-${side}`).textContent = hint;
  const other = headIndex(layer, kind === "norms" ? "weights" : "norms", byId("head").value);
  const norms = kind === "norms" ? matrix : other < 0 ? null : readHead(layer.norms, other, matrix.isCausal);
  const weights = kind === "weights" ? matrix : readHead(layer.weights, other, matrix.isCausal);
  let start = null, mark = null;  // where a drag began, and the rectangle that it has reached
  const endDrag = () => { mark?.remove(); start = mark = null; };
  drawn.image.addEventListener("pointerdown", (event) => {
    start = event;
    event.preventDefault();  // no selection of text
    box.focus({preventScroll: true});
  });
  drawn.image.addEventListener("pointermove", (event) => {
    const point = drawn.locate(event);
    drawn.mark(point && !point.isHidden ? point : null);
    byId(`readout-${side}`).textContent = !point ? hint : describePoint(point, queries, keys, weights, norms, factor, drawn.isPooled);
    if (!start) return;
    if (!mark) drawn.image.append(mark = drawSelection());
    const bounds = drawn.image.getBoundingClientRect();
    const [x, y] = [Math.min(start.clientX, event.clientX) - bounds.left, Math.min(start.clientY, event.clientY) - bounds.top];
    const size = {width: Math.abs(event.clientX - start.clientX), height: Math.abs(event.clientY - start.clientY)};
    for (const [name, value] of Object.entries({x, y, ...size})) mark.setAttribute(name, value);
  });
  drawn.image.addEventListener("pointerup", (event) => {
    const isDrag = start && Math.hypot(event.clientX - start.clientX, event.clientY - start.clientY) > 5;
    const [first, last] = [start || event, event].map((end) => drawn.locate(drawn.clamp(end)));
    endDrag();
    if (isDrag) zoomTo(first, last, factor);
  });
  drawn.image.addEventListener("pointerleave", () => {
    endDrag();
    drawn.mark(null);
    byId(`readout-${side}`).textContent = hint;
  });
}

const drawSelection = () => svg("rect", {fill: "rgba(214, 69, 69, 0.12)", stroke: "#d64545", "pointer-events": "none"});

function describePoint(point, queries, keys, weights, norms, factor, isPooled) {
  if (point.isHidden) return "The query cannot attend to this key.";
  const {row, column} = point, at = row * weights.columns + column;
  const name = (tokens, cell) => factor > 1 || isPooled ? `${tokens[cell * factor]} (${cell * factor + 1})` : tokens[cell];
  const describe = (label, matrix) => {
    const numbers = rowOf(matrix, row), sum = numbers.reduce((a, b) => a + b, 0);
    if (isNull(numbers)) return `${label} 0 (null row)`;
    // Of a pooled map, the sum of a row is not known.
    const share = matrix.hasNegative || factor > 1 ? "" : `, ${format(100 * numbers[column] / sum)}% of the row`;
    return `${label} ${format(matrix.values[at])}${share}`;
  };
  return `${name(queries, row)} → ${name(keys, column)}: ${describe("weight", weights)}${norms ? `; ${describe("norm", norms)}` : ""}`;
}

function drawSide(side) {
  // Cleared first: if something fails below, nothing of the previous choice must remain.
  for (const part of ["heads", "map", "measures", "readout"]) byId(`${part}-${side}`).replaceChildren();
  const sentence = selectedSentence(side), layers = selectLayers(sentence);
  byId(`source-${side}`).textContent = sentence ? sentence.source_text : "";
  byId(`origin-${side}`).textContent = sentence ? ORIGINS[sentence.origin] : "";
  byId(`target-${side}`).textContent = sentence ? sentence.target_text : "";
  drawHeads(side, layers);
  drawEnlarged(side, sentence, layers[byId("layer").value]);
}

// ---- Controls -------------------------------------------------------------------------------------------------------

/** Zoom to the region between two cells, given as {row, column}. */
function zoomTo(first, last, factor) {
  const range = (a, b) => {
    const start = Math.min(a, b) * factor, count = (Math.abs(a - b) + 1) * factor;
    const size = Math.max(count, SMALLEST_REGION);
    return [Math.max(0, Math.round(start + (count - size) / 2)), size];
  };
  const [top, rows] = range(first.row, last.row), [left, columns] = range(first.column, last.column);
  zoom = {top, left, rows, columns};
  refresh();
}

/** Enlarge or reduce the region by a factor around its middle, and move it by shares of its size. */
function changeZoom(scale, down = 0, right = 0) {
  const sentence = selectedSentence("left") || selectedSentence(SIDES.at(-1)), site = byId("site").value;
  if (!sentence) return;
  const all = {rows: site === "encoder" ? sentence.source.length : sentence.target.length,
               columns: site === "decoder" ? sentence.target.length : sentence.source.length};
  const old = zoom || {top: 0, left: 0, ...all};
  const move = (first, count, length, shift) => {
    const size = Math.min(length, Math.max(SMALLEST_REGION, Math.round(count * scale)));
    const start = Math.round(first + (count - size) / 2 + shift * size);
    return [Math.max(0, Math.min(length - size, start)), size];
  };
  const [top, rows] = move(old.top, old.rows, all.rows, down), [left, columns] = move(old.left, old.columns, all.columns, right);
  zoom = rows === all.rows && columns === all.columns ? null : {top, left, rows, columns};
  refresh();
}

const KEYS = {"+": [0.5], "-": [2], "ArrowUp": [1, -0.5], "ArrowDown": [1, 0.5], "ArrowLeft": [1, 0, -0.5], "ArrowRight": [1, 0, 0.5]};

function save(side) {
  const text = new XMLSerializer().serializeToString(byId(`map-${side}`).firstChild);
  const link = create("a", {href: URL.createObjectURL(new Blob([text], {type: "image/svg+xml"}))});
  const {site, layer, head, kind} = Object.fromEntries(["site", "layer", "head", "kind"].map((id) => [id, byId(id).value]));
  link.download = `${models[byId(side).value].name.replace(/\W+/g, "-")}-${Number(byId("sentence").value) + 1}-${site}-${Number(layer) + 1}-`
    + `${head === ALL ? ALL : Number(head) + 1}-${kind}.svg`;
  link.click();
  URL.revokeObjectURL(link.href);
}

function choose(values) {
  for (const [id, value] of Object.entries(values)) byId(id).value = value;
  if ("sentence" in values) zoom = null;
  refresh();
}

function refresh() {
  const layers = SIDES.map((side) => selectLayers(selectedSentence(side)));
  const heads = Math.max(0, ...layers.flat().map(countHeads));
  fill(byId("layer"), Array.from({length: Math.max(0, ...layers.map((found) => found.length))}, (_, i) => [i, i + 1]));
  fill(byId("head"), [...Array.from({length: heads}, (_, i) => [i, i + 1]), [ALL, ALL]]);
  drawSentences();
  SIDES.forEach(drawSide);
}

function start() {
  const everySentence = models.flatMap((model) => model.sentences);
  const origins = [...new Set(everySentence.map((s) => s.origin))];
  fill(byId("sentence"), [...new Set(everySentence.map((s) => s.index))].map((index) => [index, index]));
  fill(byId("origin"), origins.map((origin) => [origin, ORIGINS[origin]]));
  byId("origin-label").hidden = origins.length < 2 || hasBothOrigins();
  byId("sentences").hidden = new Set(everySentence.map((s) => s.index)).size < 2;
  fill(byId("site"), Object.entries(SITES));
  byId("site").value = "cross";
  byId("panel-right").hidden = SIDES.length < 2;
  byId("panels").classList.toggle("single", SIDES.length < 2);
  for (const side of ["left", "right"]) byId(side).disabled = models.length < 2;
  for (const side of ["left", "right"]) fill(byId(side), models.map((model, index) => [index, model.name]));
  byId("right").value = String(Math.min(1, models.length - 1));
  for (const id of ["kind", "layer", "head", "left", "right"]) byId(id).addEventListener("change", refresh);
  for (const id of ["sentence", "origin", "site"]) byId(id).addEventListener("change", () => { zoom = null; refresh(); });
  for (const id of ["contains", "measure", "lowest", "highest"]) byId(id).addEventListener("input", drawSentences);
  for (const side of SIDES) {
    byId(`save-${side}`).addEventListener("click", () => save(side));
    byId(`map-${side}`).addEventListener("keydown", (event) => {
      if (event.key === "0") { zoom = null; refresh(); } else if (event.key in KEYS) changeZoom(...KEYS[event.key]); else return;
      event.preventDefault();
    });
  }
  byId("zoom-in").addEventListener("click", () => changeZoom(0.5));
  byId("zoom-out").addEventListener("click", () => changeZoom(2));
  byId("zoom-all").addEventListener("click", () => { zoom = null; refresh(); });
  let width = window.innerWidth;  // a phone's address bar changes the height while the page is scrolled
  window.addEventListener("resize", () => { if (width !== window.innerWidth) { width = window.innerWidth; refresh(); } });
  refresh();
  // The last layer that both sides have.
  const counts = SIDES.map((side) => selectLayers(selectedSentence(side)).length).filter(Boolean);
  choose({layer: counts.length ? Math.min(...counts) - 1 : 0, head: ALL});
}

start();
