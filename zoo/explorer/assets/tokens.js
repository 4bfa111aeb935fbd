// The tokens of both sides, with lines and shades for the token under the pointer or with the keyboard focus.

import { make, setWeight } from "./dom.js";
import { pageColor } from "./colors.js";
import { largestOf, weightsOf } from "./data.js";
import { continues, direction, plain, shown } from "./words.js";

const MOST_LINES = 48;
const FAINTEST = 0.03; // fraction of the largest weight
const MOST_HINTED = 40; // rows whose strongest line is drawn faintly while another row is shown
const MANY = 120; // tokens; with more of them, the font is smaller

export class Strips {
  /** `onFocus(side, index, isChoice)` is called for the token under the pointer, with `null` if there is none. */
  constructor(onFocus) {
    this.onFocus = onFocus;
    this.lists = { columns: this.list("columns"), rows: this.list("rows") };
    this.titles = { columns: make("h3", {}), rows: make("h3", {}) };
    this.canvas = make("canvas", { "aria-hidden": "true" });
    const { lists, titles } = this;
    this.element = make(
      "section",
      { class: "strips", "aria-label": "Tokens" },
      titles.columns,
      lists.columns,
      lists.rows,
      titles.rows,
      this.canvas,
    );
    this.tokens = { columns: [], rows: [] };
    new ResizeObserver(() => this.redraw?.()).observe(this.element);
  }

  list(side) {
    const number = (event) => this.tokens[side].indexOf(event.target.closest(".token"));
    const on = (event, isChoice) => number(event) >= 0 && this.onFocus(side, number(event), isChoice);
    return make("div", {
      class: "strip",
      role: "listbox",
      "aria-orientation": "horizontal",
      pointerover: (event) => on(event, false),
      pointerleave: () => this.onFocus(null),
      click: (event) => on(event, true),
      focusin: (event) => on(event, true),
      keydown: (event) => this.move(event, side, number(event)),
    });
  }

  /** Shows tokens; the first `given` rows are the prompt; `labels` are additional texts of rows for screen readers. */
  show(tokens, titles, given, labels) {
    const all = [...tokens.columns, ...tokens.rows];
    for (const side of ["columns", "rows"]) {
      const joined = continues(tokens[side], all);
      this.titles[side].textContent = titles[side];
      this.lists[side].setAttribute("aria-label", titles[side]);
      this.lists[side].dir = direction(tokens[side]);
      this.lists[side].classList.toggle("many", tokens[side].length > MANY);
      this.tokens[side] = tokens[side].map((token, index) => {
        const extra = side === "rows" ? labels[index] : "";
        const label = `${shown(token)}, ${index + 1} of ${tokens[side].length}${extra ? `, ${extra}` : ""}`;
        const style = ["token", side === "rows" && index < given && "given", joined[index] && "joined"]
          .filter(Boolean)
          .join(" ");
        return make(
          "div",
          {
            class: style,
            role: "option",
            dir: "auto",
            tabindex: -1,
            "aria-selected": "false",
            "aria-label": label,
            title: shown(token),
          },
          plain(token),
        );
      });
      this.lists[side].replaceChildren(...this.tokens[side]);
      if (this.tokens[side].length) this.tokens[side][0].tabIndex = 0;
    }
  }

  /** Shows only the first `count` rows. */
  reveal(count) {
    this.tokens.rows.forEach((token, index) => (token.hidden = index >= count));
  }

  /** Marks a token as chosen, and makes it the keyboard's tab stop. */
  choose(side, index) {
    for (const [name, tokens] of Object.entries(this.tokens)) {
      const chosen = name === side ? index : -1;
      const marked = tokens.find((token) => token.getAttribute("aria-selected") === "true");
      marked?.setAttribute("aria-selected", "false");
      if (!tokens[chosen]) continue;
      for (const token of tokens) if (token.tabIndex === 0) token.tabIndex = -1;
      tokens[chosen].setAttribute("aria-selected", "true");
      tokens[chosen].tabIndex = 0;
    }
  }

  /** Draws shades and lines from one token of a picture. */
  light(picture, side, index) {
    const other = side === "rows" ? "columns" : "rows";
    const weights = weightsOf(picture, side, index);
    const largest = picture.largest || 1;
    this.tokens[other].forEach((token, place) => setWeight(token, weights[place] / largest));
    if (this.lit !== other) for (const token of this.tokens[side]) setWeight(token, 0);
    this.lit = other;
    this.look(this.tokens[side][index]);
    const lines = largestOf(weights, MOST_LINES).filter(
      (place) => weights[place] > FAINTEST * largest && !this.tokens[other][place].hidden,
    );
    this.picture = picture;
    this.redraw = () =>
      this.drawLines(
        this.tokens[side][index],
        lines.map((place) => [this.tokens[other][place], weights[place] / largest]),
        side,
      );
    this.redraw();
  }

  /** Removes shades and lines. */
  dark() {
    for (const token of Object.values(this.tokens).flat()) setWeight(token, 0);
    this.look(null);
    this.redraw = () => this.drawLines(null, [], "rows");
    this.redraw();
  }

  /** Marks the token at which the lines begin. */
  look(token) {
    this.looking?.classList.remove("looking");
    token?.classList.add("looking");
    this.looking = token;
  }

  drawLines(from, lines, side) {
    const ratio = devicePixelRatio || 1;
    const box = this.element.getBoundingClientRect();
    this.canvas.width = Math.round(box.width * ratio);
    this.canvas.height = Math.round(box.height * ratio);
    if (!from || from.hidden) return;
    const context = this.canvas.getContext("2d");
    context.scale(ratio, ratio);
    context.strokeStyle = pageColor("accent-text");
    const place = (token, isRow) => {
      const { left, width, top, bottom } = token.getBoundingClientRect();
      return [left + width / 2 - box.left, (isRow ? top : bottom) - box.top];
    };
    const line = ([x, y], [toX, toY], alpha, width) => {
      const bend = (toY - y) / 2;
      [context.globalAlpha, context.lineWidth] = [alpha, width];
      context.beginPath();
      context.moveTo(x, y);
      context.bezierCurveTo(x, y + bend, toX, toY - bend, toX, toY);
      context.stroke();
    };
    const isRow = side === "rows";
    for (const [row, column] of this.hints()) line(place(row, true), place(column, false), 0.15, 1);
    for (const [token, weight] of lines)
      line(place(from, isRow), place(token, !isRow), 0.15 + 0.75 * weight, 0.75 + 3 * weight);
  }

  /** Returns each row with the column of its largest weight; empty for many rows, which would be unreadable. */
  hints() {
    const { rows, columns } = this.tokens;
    if (rows.length > MOST_HINTED) return [];
    const pairs = rows.map((token, row) => [token, columns[largestOf(weightsOf(this.picture, "rows", row), 1)[0]]]);
    return pairs.filter(([token, column]) => !token.hidden && column);
  }

  move(event, side, index) {
    const tokens = this.tokens[side].filter((token) => !token.hidden);
    const forward = this.lists[side].dir === "rtl" ? "ArrowLeft" : "ArrowRight";
    const backward = forward === "ArrowLeft" ? "ArrowRight" : "ArrowLeft";
    const target = { [forward]: index + 1, [backward]: index - 1, Home: 0, End: tokens.length - 1 }[event.key];
    if (target === undefined) return;
    event.preventDefault();
    tokens[Math.max(0, Math.min(tokens.length - 1, target))]?.focus();
  }
}
