// All layers and heads as small pictures: one of them is open; one under the pointer is shown temporarily.

import { make, makeSelect } from "./dom.js";
import { picture } from "./data.js";
import { heatCanvas } from "./heat.js";
import { roleOf, ROLES } from "./roles.js";

const SIDE = 144; // pixels of a small picture
const [NARROWEST, WIDEST] = [0.6, 2]; // aspect ratios, width by height; other pictures are stretched
const FEWEST_TO_ORDER = 4; // heads
const BUDGET = 12; // milliseconds of drawing before other events are processed
const RULE = "A mark shows where at least half of a head’s weight goes, and twice as much as by chance, or that it is spread.";

export class Grid {
  /** `onOpen(layer, head)` is called for an opened picture, `onPoint` for the one under the pointer. */
  constructor(onOpen, onPoint) {
    const point = (event) => {
      const button = event.target.closest("button");
      onPoint(...(button ? this.placeOf(button) : [null, null]));
    };
    const listeners = {
      keydown: (event) => this.move(event),
      pointerover: point,
      pointerleave: () => onPoint(null, null),
    };
    this.cells = make("div", { class: "grid", role: "radiogroup", "aria-label": "Layers and heads", ...listeners });
    this.rule = make("p", { class: "quiet", hidden: true });
    const orders = [
      ["place", "layer and head"],
      ["role", "what they do"],
    ];
    this.order = makeSelect("Order by", orders, "place", () => this.arrange());
    this.order.label.classList.add("order");
    this.element = make(
      "section",
      {},
      make("h3", {}, "Layers and heads: point at one to see its lines, open it to keep them"),
      this.order.label,
      this.cells,
      this.rule,
    );
    this.onOpen = onOpen;
    this.round = 0;
    this.known = new WeakMap(); // the role of each head whose button is drawn
    this.roles = new Set();
  }

  /** Shows the pictures of a kind of attention; `refresh` adds those of layers that are loaded later. */
  show(attention, kind, tokens) {
    [this.attention, this.kind, this.tokens] = [attention, kind, tokens];
    const { heads, layers, rows, columns } = attention;
    this.element.hidden = heads * layers.length === 1;
    this.order.label.hidden = heads * layers.length < FEWEST_TO_ORDER;
    this.cells.style.setProperty("--heads", heads);
    this.cells.style.setProperty("--shape", Math.min(WIDEST, Math.max(NARROWEST, columns / rows)));
    this.buttons = layers.map((_, layer) => Array.from({ length: heads }, (_, head) => this.button(layer, head)));
    this.roles.clear();
    this.rule.hidden = true;
    this.arrange();
    this.refresh();
  }

  /** Puts the pictures in the chosen order. */
  arrange() {
    const isByRole = this.order.select.value === "role";
    this.cells.classList.toggle("by-role", isByRole);
    this.cells.replaceChildren(...(isByRole ? this.groups() : this.table()));
  }

  /** Returns the pictures in a table with a row per layer, with numbers at the sides. */
  table() {
    const label = (word, number) =>
      make("span", { class: `label ${word}`, "aria-hidden": "true" }, make("span", {}, `${word} `), String(number + 1));
    const above = [
      make("span", { class: "label", "aria-hidden": "true" }),
      ...this.buttons[0].map((_, head) => label("head", head)),
    ];
    return [...above, ...this.buttons.flatMap((row, layer) => [label("layer", layer), ...row])];
  }

  /** Returns the pictures grouped by role, those with the largest share first. */
  groups() {
    const drawn = this.buttons.flat().filter((button) => this.known.has(button));
    const group = (title, members) => (members.length ? [make("span", { class: "group" }, title), ...members] : []);
    const named = Object.entries(ROLES).flatMap(([name, meaning]) => {
      const members = drawn.filter((button) => this.known.get(button)?.name === name);
      members.sort((one, other) => this.known.get(other).share - this.known.get(one).share);
      return group(`${name}: ${meaning}`, members);
    });
    const others = drawn.filter((button) => this.known.get(button) === null);
    const waiting = this.buttons.flat().filter((button) => !this.known.has(button));
    return [...named, ...group("no clear role", others), ...group("not loaded yet", waiting)];
  }

  button(layer, head) {
    const open = () => this.onOpen(layer, head);
    const label = `layer ${layer + 1}, head ${head + 1}`;
    return make(
      "button",
      {
        type: "button",
        class: "small",
        role: "radio",
        "aria-checked": "false",
        "aria-label": label,
        title: label,
        tabindex: -1,
        click: open,
      },
      "…",
    );
  }

  placeOf(button) {
    const layer = this.buttons.findIndex((row) => row.includes(button));
    return [layer, this.buttons[layer].indexOf(button)];
  }

  /** Draws the missing pictures, a few milliseconds at a time. */
  refresh() {
    const round = ++this.round;
    const open = this.buttons.flatMap((row, layer) => row.map((button, head) => [button, layer, head]));
    const missing = open.filter(
      ([button, layer]) => !button.querySelector("canvas") && this.attention.layers[layer] !== null,
    );
    const work = () => {
      if (round !== this.round) return;
      const end = performance.now() + BUDGET;
      while (missing.length && performance.now() < end) this.draw(...missing.shift());
      if (missing.length) setTimeout(work);
      else if (this.order.select.value === "role") this.arrange();
    };
    work();
  }

  draw(button, layer, head) {
    const shown = picture(this.attention, layer, head);
    const role = roleOf(shown, this.kind, this.tokens);
    const label = `layer ${layer + 1}, head ${head + 1}`;
    this.known.set(button, role);
    const name = role?.name ?? "";
    const place = make("span", { class: "place", "aria-hidden": "true" }, `${layer + 1} · ${head + 1}`);
    button.replaceChildren(heatCanvas(shown, SIDE), make("span", { class: "role" }, name), place);
    button.setAttribute("aria-label", role ? `${label}, ${name}` : label);
    button.title = role ? `${label}, ${name}: ${ROLES[name]}` : label;
    if (!role || this.roles.has(name)) return;
    this.roles.add(name);
    this.rule.hidden = false;
    this.rule.textContent = `${RULE} ${[...this.roles].map((name) => `“${name}”: ${ROLES[name]}`).join("; ")}.`;
  }

  /** Draws everything again, in the current colours. */
  repaint() {
    for (const button of this.buttons.flat()) button.replaceChildren("…");
    this.refresh();
  }

  /** Marks the open picture; for a mean over heads, the first head receives the keyboard focus. */
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
    const [down, right] = steps[event.key];
    const [layer, head] = this.order.select.value === "role" ? this.following(down + right) : this.neighbour(down, right);
    this.onOpen(layer, head);
    this.buttons[layer][head].focus();
  }
  /** Returns layer and head of the picture below or beside the open one. */
  neighbour(down, right) {
    const { heads, layers } = this.attention;
    return [(this.at[0] + down + layers.length) % layers.length, (this.at[1] + right + heads) % heads];
  }

  /** Returns layer and head of the picture `distance` after the open one. */
  following(distance) {
    const shown = [...this.cells.querySelectorAll("button")];
    const place = shown.indexOf(this.buttons[this.at[0]][this.at[1]]);
    return this.placeOf(shown[(place + distance + shown.length) % shown.length]);
  }
}
