// The large picture of all tokens, in which the pointer or the arrow keys choose a cell.

import { make } from "./dom.js";
import { pageColor } from "./colors.js";
import { drawMatrix, planMatrix } from "./heat.js";
import { percent } from "./words.js";

export class Matrix {
  /** `onChoose(row, column)` is called for the chosen cell. */
  constructor(onChoose) {
    this.canvas = make("canvas", {
      tabindex: 0,
      role: "img",
      pointermove: (event) => this.point(event, false),
      pointerleave: () => this.highlight(this.chosen),
      click: (event) => this.point(event, true),
      keydown: (event) => this.move(event),
    });
    this.readout = make("p", { class: "quiet", "aria-live": "polite" });
    this.scroll = make("div", { class: "scroll" }, this.canvas);
    this.element = make(
      "section",
      { "aria-label": "All weights" },
      make("h3", {}, "All weights, a row for each token that attends"),
      this.scroll,
      this.readout,
    );
    this.onChoose = onChoose;
    this.chosen = { row: null, column: null };
    new ResizeObserver(() => this.picture && this.availableWidth() !== this.width && this.draw()).observe(
      document.documentElement,
    );
  }

  /** Shows a picture; `labels` are the tokens of both sides. */
  show(picture, labels, description) {
    [this.picture, this.labels] = [picture, labels];
    this.canvas.setAttribute("aria-label", `${description}. Arrow keys go from weight to weight.`);
    this.draw();
  }

  /** Returns the width that is available for the picture. */
  availableWidth() {
    return this.element.parentElement?.clientWidth || 600;
  }

  draw() {
    this.width = this.availableWidth();
    this.plan = planMatrix(this.picture, this.labels, this.width);
    this.ratio = devicePixelRatio || 1;
    this.base = document.createElement("canvas");
    for (const canvas of [this.base, this.canvas]) {
      canvas.width = Math.round(this.plan.width * this.ratio);
      canvas.height = Math.round(this.plan.height * this.ratio);
    }
    this.canvas.style.width = `${this.plan.width}px`;
    this.canvas.style.height = `${this.plan.height}px`;
    const context = this.base.getContext("2d");
    context.scale(this.ratio, this.ratio);
    drawMatrix(context, this.plan, this.picture);
    this.highlight(this.chosen);
  }

  /** Frames a row, a column or, given both, a cell, and displays its weight. */
  highlight({ row, column }) {
    const { cell, left, top } = this.plan;
    const { rows, columns, values } = this.picture;
    const context = this.canvas.getContext("2d");
    context.setTransform(1, 0, 0, 1, 0, 0);
    context.drawImage(this.base, 0, 0);
    context.scale(this.ratio, this.ratio);
    context.strokeStyle = pageColor("accent-text");
    context.lineWidth = 2;
    const hasRow = row !== null && row < rows;
    const hasColumn = column !== null && column < columns;
    if (hasRow) context.strokeRect(left, top + row * cell, columns * cell, cell);
    if (hasColumn) context.strokeRect(left + column * cell, top, cell, rows * cell);
    if (hasRow && hasColumn) {
      const words = `“${this.plan.rowLabels[row]}” attends to “${this.plan.columnLabels[column]}”`;
      this.readout.textContent = `${words}: ${percent(values[row * columns + column])}`;
    } else {
      this.readout.textContent = `The largest weight is ${percent(this.picture.largest)}.`;
    }
  }

  /** Chooses a row or a column from outside. */
  choose(row, column) {
    this.chosen = { row, column };
    if (this.picture) this.highlight(this.chosen);
  }

  point(event, isChoice) {
    const box = this.canvas.getBoundingClientRect();
    const column = Math.floor((event.clientX - box.left - this.plan.left) / this.plan.cell);
    const row = Math.floor((event.clientY - box.top - this.plan.top) / this.plan.cell);
    if (row < 0 || column < 0 || row >= this.picture.rows || column >= this.picture.columns) return;
    if (isChoice) this.onChoose(row, column);
    this.highlight({ row, column });
  }

  move(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!steps[event.key]) return;
    event.preventDefault();
    const [down, right] = steps[event.key];
    const row = Math.max(
      0,
      Math.min(this.picture.rows - 1, (this.chosen.row ?? 0) + (this.chosen.row === null ? 0 : down)),
    );
    const column = Math.max(
      0,
      Math.min(this.picture.columns - 1, (this.chosen.column ?? 0) + (this.chosen.column === null ? 0 : right)),
    );
    this.onChoose(row, column);
    this.choose(row, column);
  }
}
