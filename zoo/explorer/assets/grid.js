// All layers and heads as small pictures; one of them is open.

import { make } from "./dom.js";
import { picture } from "./data.js";
import { heatCanvas } from "./heat.js";

const SIDE = 96; // pixels of a small picture
const [LEAST, MOST] = [32, 640]; // CSS pixels: the side of the smallest, and the width of all of them
const BUDGET = 12; // milliseconds of drawing before the page may do something else

export class Grid {
  /** `onOpen(layer, head)` is called for the picture that is opened. */
  constructor(onOpen) {
    this.cells = make("div", { class: "grid", role: "radiogroup", "aria-label": "Layers and heads", keydown: (event) => this.move(event) });
    this.element = make("section", {}, make("h3", {}, "All layers (down) and heads (across)"), this.cells);
    this.onOpen = onOpen;
    this.round = 0;
  }

  /** Shows the pictures of a kind of attention; those of layers that are not there yet follow by `refresh`. */
  show(attention) {
    this.attention = attention;
    const { heads, layers } = attention;
    const room = this.element.parentElement?.clientWidth || 640;
    const width = Math.max(LEAST, Math.min(SIDE, Math.floor((Math.min(room, MOST) - 8) / heads) - 4));
    this.cells.style.gridTemplateColumns = `repeat(${heads}, ${width}px)`;
    this.buttons = layers.map((_, layer) => Array.from({ length: heads }, (_, head) => this.button(layer, head)));
    this.cells.replaceChildren(...this.buttons.flat());
    this.refresh();
  }

  button(layer, head) {
    const label = `layer ${layer + 1}, head ${head + 1}`;
    const open = () => this.onOpen(layer, head);
    return make("button", { type: "button", class: "small", role: "radio", "aria-checked": "false", "aria-label": label, title: label, tabindex: -1, click: open }, "…");
  }

  /** Draws what is not drawn yet, a few milliseconds at a time. */
  refresh() {
    const round = ++this.round;
    const open = this.buttons.flatMap((row, layer) => row.map((button, head) => [button, layer, head]));
    const missing = open.filter(([button, layer]) => !button.querySelector("canvas") && this.attention.layers[layer] !== null);
    const work = () => {
      if (round !== this.round) return;
      const end = performance.now() + BUDGET;
      while (missing.length && performance.now() < end) {
        const [button, layer, head] = missing.shift();
        button.replaceChildren(heatCanvas(picture(this.attention, layer, head), SIDE));
      }
      if (missing.length) setTimeout(work);
    };
    work();
  }

  /** Draws everything anew, in the colours of now. */
  repaint() {
    for (const button of this.buttons.flat()) button.replaceChildren("…");
    this.refresh();
  }

  /** Marks the open picture; of a mean over heads, the first head takes the keyboard. */
  mark(layer, head) {
    this.at = [layer, head === "mean" ? 0 : head];
    this.buttons.forEach((row, rowLayer) =>
      row.forEach((button, rowHead) => {
        button.setAttribute("aria-checked", String(rowLayer === layer && rowHead === head));
        button.tabIndex = rowLayer === this.at[0] && rowHead === this.at[1] ? 0 : -1;
      }),
    );
  }

  move(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (!steps[event.key]) return;
    event.preventDefault();
    const { heads, layers } = this.attention;
    const layer = (this.at[0] + steps[event.key][0] + layers.length) % layers.length;
    const head = (this.at[1] + steps[event.key][1] + heads) % heads;
    this.onOpen(layer, head);
    this.buttons[layer][head].focus();
  }
}
