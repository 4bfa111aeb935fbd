// Draws weights: small pictures, the large one with labels, and the same as SVG.

import { colorOf, colorTable, pageColor } from "./colors.js";
import { plain } from "./words.js";

const FONT = "system-ui, 'Noto Sans', sans-serif";
const [LEAST_CELL, LARGEST_CELL, LABELLED_CELL] = [2, 28, 9]; // CSS pixels; smaller cells have no labels
const LONGEST_LABEL = 120; // CSS pixels
const GAP = 5;
const MOST_RECTANGLES = 64 * 64; // in SVG; more weights are embedded as an image
const SVG = "http://www.w3.org/2000/svg";

/** Returns a canvas with one pixel per weight; more than `limit` rows or columns are reduced by their maxima. */
export function heatCanvas(picture, limit = Infinity) {
  const { rows, columns, values, largest } = pooled(picture, limit);
  const canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [columns, rows];
  const context = canvas.getContext("2d");
  const image = context.createImageData(columns, rows);
  const pixels = new Uint32Array(image.data.buffer);
  const table = colorTable();
  const factor = (table.length - 1) / (largest || 1);
  for (let i = 0; i < pixels.length; i++) pixels[i] = table[Math.round(values[i] * factor)];
  context.putImageData(image, 0, 0);
  return canvas;
}

function pooled(picture, limit) {
  const { rows, columns, values, largest } = picture;
  const step = Math.ceil(Math.max(rows, columns) / limit);
  if (step <= 1) return picture;
  const [fewRows, fewColumns] = [Math.ceil(rows / step), Math.ceil(columns / step)];
  const few = new Float32Array(fewRows * fewColumns);
  for (let row = 0; row < rows; row++) {
    const start = Math.floor(row / step) * fewColumns;
    for (let column = 0; column < columns; column++) {
      const place = start + Math.floor(column / step);
      const value = values[row * columns + column];
      if (value > few[place]) few[place] = value;
    }
  }
  return { rows: fewRows, columns: fewColumns, values: few, largest };
}

/** Returns the layout of the large picture for a width in CSS pixels. */
export function planMatrix(picture, labels, width) {
  const rowLabels = labels.rows.map(plain);
  const columnLabels = labels.columns.map(plain);
  const context = document.createElement("canvas").getContext("2d");
  context.font = `14px ${FONT}`;
  const longest = (texts) =>
    Math.min(LONGEST_LABEL, Math.max(0, ...texts.map((text) => context.measureText(text).width)));
  let left = longest(rowLabels) + 2 * GAP;
  const available = Math.max((width - left - GAP) / picture.columns, LEAST_CELL);
  const cell = Math.min(available, LARGEST_CELL);
  const labelled = cell >= LABELLED_CELL;
  if (!labelled) left = 2 * GAP;
  const size = Math.min(14, 0.8 * cell);
  const fit = columnLabels.every((text) => (context.measureText(text).width * size) / 14 < cell);
  const upright = columnLabels.map((text) => fit || [...text].length === 1);
  const turned = columnLabels.filter((_, column) => !upright[column]);
  const top = !labelled ? 2 * GAP : Math.max(size, (longest(turned) * size) / 14) + 2 * GAP;
  return {
    cell,
    left,
    top,
    labelled,
    size,
    upright,
    rowLabels,
    columnLabels,
    width: Math.ceil(left + cell * picture.columns + GAP),
    height: Math.ceil(top + cell * picture.rows + GAP),
  };
}

/** Draws the large picture on a context whose unit is one CSS pixel. */
export function drawMatrix(context, plan, picture) {
  const { cell, left, top, labelled, size, upright, rowLabels, columnLabels } = plan;
  context.fillStyle = pageColor("surface");
  context.fillRect(0, 0, plan.width, plan.height);
  const [width, height] = [cell * picture.columns, cell * picture.rows];
  context.imageSmoothingEnabled = false;
  context.drawImage(heatCanvas(picture), left, top, width, height);
  context.strokeStyle = pageColor("line");
  context.strokeRect(left - 0.5, top - 0.5, width + 1, height + 1);
  if (!labelled) return;
  context.fillStyle = pageColor("text");
  context.font = `${size}px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  rowLabels.forEach((text, row) => context.fillText(text, left - GAP, top + (row + 0.5) * cell, LONGEST_LABEL));
  columnLabels.forEach((text, column) => {
    context.save();
    context.translate(left + (column + 0.5) * cell, top - GAP);
    if (!upright[column]) context.rotate(-Math.PI / 2);
    context.textAlign = upright[column] ? "center" : "left";
    context.textBaseline = upright[column] ? "bottom" : "middle";
    context.fillText(text, 0, 0, LONGEST_LABEL);
    context.restore();
  });
}

/** Returns the large picture as an SVG element, with a title line. */
export function svgMatrix(plan, picture, title) {
  const line = 24;
  const svg = svgElement("svg", {
    xmlns: SVG,
    width: plan.width,
    height: plan.height + line,
    viewBox: `0 0 ${plan.width} ${plan.height + line}`,
  });
  svg.append(svgElement("rect", { width: "100%", height: "100%", fill: pageColor("surface") }));
  const words = { "font-family": FONT, fill: pageColor("text") };
  svg.append(svgElement("text", { x: GAP, y: 16, "font-size": 13, ...words }, title));
  const body = svgElement("g", { transform: `translate(0 ${line})` });
  svg.append(body);
  const { cell, left, top, size, upright } = plan;
  if (picture.rows * picture.columns > MOST_RECTANGLES) {
    const [width, height] = [cell * picture.columns, cell * picture.rows];
    const href = heatCanvas(picture).toDataURL("image/png");
    body.append(
      svgElement("image", {
        x: left,
        y: top,
        width,
        height,
        href,
        preserveAspectRatio: "none",
        style: "image-rendering: pixelated",
      }),
    );
  } else {
    picture.values.forEach((value, index) => {
      const [row, column] = [Math.floor(index / picture.columns), index % picture.columns];
      const place = { x: left + column * cell, y: top + row * cell, width: cell, height: cell };
      const rectangle = svgElement("rect", { ...place, fill: colorOf(value / (picture.largest || 1)) });
      rectangle.append(
        svgElement("title", {}, `${plan.rowLabels[row]} → ${plan.columnLabels[column]}: ${value.toFixed(4)}`),
      );
      body.append(rectangle);
    });
  }
  if (!plan.labelled) return svg;
  plan.rowLabels.forEach((text, row) => {
    const place = { x: left - GAP, y: top + (row + 0.5) * cell + size / 3, "text-anchor": "end" };
    body.append(svgElement("text", { ...place, "font-size": size, ...words }, text));
  });
  plan.columnLabels.forEach((text, column) => {
    const at = `translate(${left + (column + 0.5) * cell} ${top - GAP})`;
    const place = upright[column]
      ? { transform: at, "text-anchor": "middle" }
      : { transform: `${at} rotate(-90)`, dy: size / 3 };
    body.append(svgElement("text", { ...place, "font-size": size, ...words }, text));
  });
  return svg;
}

function svgElement(tag, attributes, text) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== undefined) element.textContent = text;
  return element;
}
