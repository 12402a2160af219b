"use strict";
// Drawing of one attention map. A matrix is {values, rows, columns, isCausal, largest}: what one head gives to each key,
// row by row. A region {top, left, rows, columns} is the part of it that is drawn.

const create = (tag, properties) => Object.assign(document.createElement(tag), properties);
// The palest color is clearly not white, so that white can mean exactly 0. Red is for negative weights.
const BLUES = shades([222, 235, 247], [8, 48, 107]), REDS = shades([254, 224, 210], [103, 0, 13]);
const WHITE = [255, 255, 255], HIDDEN = [240, 242, 245];
const CELL = {smallest: 9, largest: 26};  // pixels of a cell that is drawn by itself
const HEIGHT = {largest: 1100, pooled: 640};  // pixels of a map of such cells, and of one with smaller ones
const LABEL = {font: 12, longest: 150, slope: Math.sin(50 * Math.PI / 180), reach: Math.cos(50 * Math.PI / 180)};

/** 256 colors from pale to dark: looked up, because a map of a document has a million pixels. */
function shades(pale, dark) {
  return Array.from({length: 256}, (_, step) => pale.map((channel, index) => Math.round(channel + step / 255 * (dark[index] - channel))));
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

const codes = new WeakMap();

/** The bfloat16 numbers of all heads of an encoded map. */
function decodeBase64(map) {
  if (!codes.has(map)) {
    codes.set(map, map.heads.map((head) => {
      const text = atob(head), bytes = new Uint8Array(text.length);
      for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
      return new Uint16Array(bytes.buffer);
    }));
  }
  return codes.get(map);
}

/** Return a head's matrix. Loops, because a map of a document has millions of numbers: too many for f(...numbers). */
function readHead(map, head, isCausal) {
  const numbers = decodeBase64(map)[head], bits = new Uint32Array(numbers.length);
  for (let i = 0; i < bits.length; i++) bits[i] = numbers[i] << 16;  // a bfloat16 is the upper half of a float32
  const values = new Float32Array(bits.buffer);
  let largest = 0, hasNegative = false;
  for (const value of values) {
    largest = Math.max(largest, Math.abs(value));
    hasNegative ||= value < 0;
  }
  return {values, rows: map.shape[1], columns: map.shape[2], isCausal, largest, hasNegative};
}

const whole = (matrix) => ({top: 0, left: 0, rows: matrix.rows, columns: matrix.columns});
const rowOf = (matrix, i) => matrix.values.subarray(i * matrix.columns, (i + 1) * matrix.columns);
const isNull = (row) => row.every((value) => value === 0);

/** First and last row (or column) of the region that cell `index` of a grid of `cells` covers. */
const span = (index, cells, length) => [Math.floor(index * length / cells), Math.floor((index + 1) * length / cells) - 1];

/**
 * Lay a grid over a region and return the position of the largest magnitude in each cell, or −1 if causal attention
 * hides the whole cell. The largest, because a mean would hide single peaks, and a sample would miss them.
 */
function pool(matrix, region, rows, columns) {
  const peaks = new Int32Array(rows * columns);
  for (let i = 0; i < rows; i++) {
    const [firstRow, lastRow] = span(i, rows, region.rows);
    for (let j = 0; j < columns; j++) {
      const [firstColumn, lastColumn] = span(j, columns, region.columns);
      let peak = -1, magnitude = -1;
      if (!matrix.isCausal || region.left + firstColumn <= region.top + lastRow) {
        for (let row = firstRow; row <= lastRow; row++) {
          const start = (region.top + row) * matrix.columns + region.left;
          for (let at = start + firstColumn; at <= start + lastColumn; at++) {
            const found = Math.abs(matrix.values[at]);
            if (found > magnitude) { magnitude = found; peak = at; }
          }
        }
      }
      peaks[i * columns + j] = peak;
    }
  }
  return peaks;
}

function color(matrix, peak) {
  const value = matrix.values[peak];
  if (peak < 0) return HIDDEN;
  if (value === 0) return WHITE;
  return (value < 0 ? REDS : BLUES)[Math.round(255 * Math.abs(value) / matrix.largest)];
}

const css = (rgb) => `rgb(${rgb.join(", ")})`;

/** A canvas with one pixel per cell of a grid. */
function paint(matrix, peaks, rows, columns) {
  const canvas = create("canvas", {width: columns, height: rows}), context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  peaks.forEach((peak, index) => {
    image.data.set(color(matrix, peak), 4 * index);
    image.data[4 * index + 3] = 255;
  });
  context.putImageData(image, 0, 0);
  return canvas;
}

// ---- The enlarged map -----------------------------------------------------------------------------------------------

const measuring = create("canvas").getContext("2d");
measuring.font = `${LABEL.font}px system-ui, sans-serif`;
const textWidth = (text) => measuring.measureText(text).width;

/** Cut a label that is wider than LABEL.longest. */
function cut(text) {
  if (textWidth(text) <= LABEL.longest) return text;
  let length = text.length;
  while (length > 1 && textWidth(`${text.slice(0, length)}…`) > LABEL.longest) length--;
  return `${text.slice(0, length)}…`;
}

function svg(tag, attributes, text) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}

/** Pixels of a map in `room`: cells of their own if they fit, else a grid of at most two cells per pixel. */
function measureCells(region, room) {
  const fitting = Math.floor(Math.min(CELL.largest, room / region.columns, HEIGHT.largest / region.rows));
  if (fitting >= CELL.smallest) {
    return {isPooled: false, width: fitting * region.columns, height: fitting * region.rows, rows: region.rows, columns: region.columns};
  }
  const width = Math.min(room, CELL.largest * region.columns);
  const height = Math.min(HEIGHT.pooled, CELL.largest * region.rows, Math.max(60, width * region.rows / region.columns));
  return {isPooled: true, width, height, rows: Math.min(region.rows, Math.round(2 * height)), columns: Math.min(region.columns, Math.round(2 * width))};
}

/**
 * Labels of the tokens; where they would overlap or a cell stands for several tokens, of every n-th, with its number.
 * `spacing` is the distance in pixels of two labels that do not overlap.
 */
function selectLabels(tokens, first, count, pixels, factor, spacing) {
  const hasAll = factor === 1 && pixels / count >= CELL.smallest, step = hasAll ? 1 : Math.ceil(count * spacing / pixels);
  return Array.from({length: Math.ceil(count / step)}, (_, n) => {
    const cell = first + n * step, token = tokens[cell * factor];
    return {cell, text: cut(hasAll ? token : `${cell * factor + 1} ${token}`), token};
  });
}

/**
 * Draw the region of a matrix as an SVG image, which is complete without the page's style.
 *
 * Takes the matrix, the region, the tokens of its rows (queries) and columns (keys), the number of tokens that
 * each row and column stands for (factor), a caption, and the width that is there. Returns the image and functions of a
 * point of the page: `locate` gives the row and column of the largest weight there, null beside the map, `clamp` the
 * nearest point of the map; `mark` marks the tokens of a row and column.
 */
function drawMap({matrix, region, queries, keys, factor, caption, width}) {
  const mayBeNull = (label) => (isNull(rowOf(matrix, label.cell)) ? "∅ " : "") + label.text;
  const labels = (grid) => [selectLabels(queries, region.top, region.rows, grid.height, factor, LABEL.font),
                            selectLabels(keys, region.left, region.columns, grid.width, factor, 1.4 * LABEL.font)];
  // The labels depend on the size of the map, and that on the width of the labels; a first guess of the size will do.
  const guess = labels(measureCells(region, 0.8 * width));
  const [queryWidth, keyWidth] = guess.map((some) => some.reduce((found, label) => Math.max(found, textWidth(`∅ ${label.text}`)), 0));
  const left = Math.ceil(queryWidth) + 8, top = Math.ceil(LABEL.slope * keyWidth) + 14;
  const right = Math.ceil(LABEL.reach * textWidth(guess[1].at(-1).text)) + 4;
  const grid = measureCells(region, Math.max(60, width - left - right));
  const [queryLabels, keyLabels] = labels(grid);
  const cellWidth = grid.width / grid.columns, cellHeight = grid.height / grid.rows;
  const tokenWidth = grid.width / region.columns, tokenHeight = grid.height / region.rows;
  const peaks = pool(matrix, region, grid.rows, grid.columns);

  const bottom = top + grid.height, total = bottom + 44;
  const image = svg("svg", {xmlns: "http://www.w3.org/2000/svg", width: Math.max(left + grid.width + right, textWidth(caption) + 4), height: total,
                            "font-family": "system-ui, sans-serif", "font-size": LABEL.font, fill: "#1f2933"});
  image.append(svg("rect", {x: left, y: top, width: grid.width, height: grid.height, fill: "#e4e7eb"}));
  if (grid.isPooled) {
    const href = paint(matrix, peaks, grid.rows, grid.columns).toDataURL();
    image.append(svg("image", {href, x: left, y: top, width: grid.width, height: grid.height, preserveAspectRatio: "none",
                               style: "image-rendering: pixelated"}));
  } else {
    peaks.forEach((peak, index) => image.append(svg("rect", {
      x: left + (index % grid.columns) * cellWidth + 0.5, y: top + Math.floor(index / grid.columns) * cellHeight + 0.5,
      width: cellWidth - 1, height: cellHeight - 1, fill: css(color(matrix, peak))})));
  }
  const font = (cell) => Math.min(LABEL.font, cell + 1);
  const keyTexts = keyLabels.map((label) => {
    const x = left + (label.cell - region.left + 0.65) * tokenWidth, size = font(Math.max(tokenWidth, CELL.smallest));
    return svg("text", {x, y: top - 5, "font-size": size, transform: `rotate(-50 ${x} ${top - 5})`}, label.text);
  });
  const queryTexts = queryLabels.map((label) => svg("text", {
    x: left - 6, y: top + (label.cell - region.top + 0.5) * tokenHeight, "font-size": font(Math.max(tokenHeight, CELL.smallest)),
    "text-anchor": "end", "dominant-baseline": "central"}, mayBeNull(label)));
  keyTexts.forEach((text, n) => text.append(svg("title", {}, keyLabels[n].token)));
  queryTexts.forEach((text, n) => text.append(svg("title", {}, queryLabels[n].token)));
  image.append(...keyTexts, ...queryTexts, ...drawScale(matrix, bottom + 12), svg("text", {x: 0, y: total - 6, fill: "#52606d"}, caption));

  /** The nearest point of the map, for a drag that ends beside it. */
  const clamp = ({clientX, clientY}) => {
    const box = image.getBoundingClientRect(), within = (x, start, size) => Math.min(Math.max(x, start + 1), start + size - 1);
    return {clientX: within(clientX, box.left + left, grid.width), clientY: within(clientY, box.top + top, grid.height)};
  };
  const locate = ({clientX, clientY}) => {
    const box = image.getBoundingClientRect();
    const i = Math.floor((clientY - box.top - top) / cellHeight), j = Math.floor((clientX - box.left - left) / cellWidth);
    if (i < 0 || j < 0 || i >= grid.rows || j >= grid.columns) return null;
    const peak = peaks[i * grid.columns + j];
    const at = {row: region.top + span(i, grid.rows, region.rows)[0], column: region.left + span(j, grid.columns, region.columns)[0]};
    return peak < 0 ? {...at, isHidden: true} : {row: Math.floor(peak / matrix.columns), column: peak % matrix.columns};
  };
  const mark = (point) => {
    const last = (labels, cell) => labels.findLastIndex((label) => label.cell <= cell);
    const chosen = point ? [queryTexts[last(queryLabels, point.row)], keyTexts[last(keyLabels, point.column)]] : [];
    for (const text of [...queryTexts, ...keyTexts]) text.setAttribute("fill", chosen.includes(text) ? "#d64545" : "#1f2933");
  };
  return {image, isPooled: grid.isPooled, locate, clamp, mark};
}

/** Two significant digits, which the 8 bits of an encoded number are enough for. */
const format = (value) => String(Number(value.toPrecision(2)));

let numScales = 0;  // the ids of gradients must differ between the maps of a page

function drawScale(matrix, y) {
  const stops = [...(matrix.hasNegative ? [REDS.at(-1), REDS[0]] : []), BLUES[0], BLUES.at(-1)], id = `scale-${numScales++}`;
  const gradient = svg("linearGradient", {id});
  stops.forEach((stop, index) => gradient.append(svg("stop", {offset: index / (stops.length - 1), "stop-color": css(stop)})));
  const first = matrix.hasNegative ? `−${format(matrix.largest)}` : "> 0", x = textWidth(first) + 6;
  return [gradient, svg("text", {x: 0, y: y + 9, fill: "#52606d"}, first),
          svg("rect", {x, y, width: 120, height: 10, fill: `url(#${id})`, stroke: "#cbd2d9"}),
          svg("text", {x: x + 126, y: y + 9, fill: "#52606d"}, format(matrix.largest))];
}
