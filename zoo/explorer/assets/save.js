// Saves the open picture as PNG or SVG, and the view as JSON.

import { make } from "./dom.js";
import { pageColor } from "./colors.js";
import { drawMatrix, planMatrix, svgMatrix } from "./heat.js";

const WIDTH = 1200; // maximum width of a saved picture in CSS pixels
const SHARPNESS = 2;
const TITLE = 28;

/** Saves a picture with its labels as PNG. */
export async function savePng(picture, labels, title, name) {
  const plan = planMatrix(picture, labels, WIDTH);
  const canvas = make("canvas");
  canvas.width = plan.width * SHARPNESS;
  canvas.height = (plan.height + TITLE) * SHARPNESS;
  const context = canvas.getContext("2d");
  context.scale(SHARPNESS, SHARPNESS);
  context.fillStyle = pageColor("surface");
  context.fillRect(0, 0, plan.width, TITLE);
  context.fillStyle = pageColor("text");
  context.font = "14px system-ui, 'Noto Sans', sans-serif";
  context.fillText(title, 6, 18, plan.width - 12);
  context.translate(0, TITLE);
  drawMatrix(context, plan, picture);
  save(await new Promise((resolve) => canvas.toBlob(resolve, "image/png")), `${name}.png`);
}

/** Saves a picture with its labels as SVG. */
export function saveSvg(picture, labels, title, name) {
  const svg = svgMatrix(planMatrix(picture, labels, WIDTH), picture, title);
  save(new Blob([new XMLSerializer().serializeToString(svg)], { type: "image/svg+xml" }), `${name}.svg`);
}

/** Saves a view as JSON; `zoo.explorer.View.load` reads it. */
export function saveJson(view, name) {
  save(new Blob([JSON.stringify(view)], { type: "application/json" }), `${name}.json`);
}

function save(blob, name) {
  const url = URL.createObjectURL(blob);
  const link = make("a", { href: url, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
