// The panel of one model and one text: its answers, tokens and pictures, and the controls to choose among them.

import { answersOf } from "./answers.js";
import { captionOf } from "./caption.js";
import { addLayer, attentions, KIND_NAMES, picture, sides } from "./data.js";
import { Details } from "./details.js";
import { make, makeChoice, makeSelect } from "./dom.js";
import { Grid } from "./grid.js";
import { Matrix } from "./matrix.js";
import { saveJson, savePng, saveSvg } from "./save.js";
import { linkButton, wholeNumber } from "./state.js";
import { Steps } from "./steps.js";
import { Strips } from "./tokens.js";
import { tour } from "./tour.js";
import { isSpecial, probability } from "./words.js";

const MOST_BESIDE = 40; // columns of the large picture; with more columns, it is as wide as the page
const HINT = "Point at a token, tap it, or go to it with Tab and the arrow keys, to see what it attended to.";

export class Panel {
  /**
   * `settings` are the settings in the address, strings by name. `source.answer(hypothesis)` and
   * `source.layer(hypothesis, layer)` load missing parts of the view; `onChange()` is called if the selection changes.
   */
  constructor(view, name, settings, source, onChange) {
    [this.view, this.name, this.source, this.onChange] = [view, name, source, onChange];
    this.status = make("p", { class: "quiet", role: "status" });
    this.element = make("article", { class: "panel", "aria-label": `${view.model}: ${view.text}` });
    const number = wholeNumber(settings.answer, 0, view.answers.length - 1, 0);
    this.state = { answer: number, kind: null, layer: null, head: "mean", side: "rows", token: null, step: 0 };
    this.wanted = settings;
  }

  get answer() {
    return this.view.answers[this.state.answer] ?? null;
  }

  get attention() {
    return attentions(this.view, this.answer)[this.state.kind];
  }

  /** The settings of this panel for the address. */
  get settings() {
    const { answer, kind, layer, head, side, token, step } = this.state;
    return {
      answer: answer || null,
      kind,
      layer,
      head,
      token: token === null ? null : `${side}:${token}`,
      step: step || null,
    };
  }

  /** Fills the panel, after it was attached to the page. */
  build() {
    const { view } = this;
    this.said = make("p", { class: "said" });
    this.controls = make("div", {});
    this.inside = make("div", {});
    const notes = view.notes.map((note) => make("p", { class: "quiet" }, note));
    const parts = [
      make("h2", {}, view.model),
      this.said,
      answersOf(view, this.name, this.state.answer, (number) => this.chooseAnswer(number)),
      ...notes,
      this.status,
      this.controls,
      this.inside,
    ];
    this.element.replaceChildren(...parts.filter(Boolean));
    this.showAnswer();
  }

  chooseAnswer(number) {
    this.stop();
    this.state.answer = number;
    this.wanted = { ...this.settings, token: null, step: null };
    this.showAnswer();
  }

  /** Shows the chosen answer, and loads it first if necessary. */
  async showAnswer() {
    const { view, answer } = this;
    this.said.replaceChildren(...this.saying());
    if (answer && answer.tokens === null) {
      const asked = this.state.answer;
      this.inside.replaceChildren();
      this.controls.replaceChildren();
      const loaded = await this.load("Asking for this answer …", () => this.source.answer(answer.hypothesis));
      if (!loaded) return;
      view.answers[asked] = { ...loaded, log_prob: answer.log_prob ?? loaded.log_prob };
      if (asked !== this.state.answer) return;
    }
    this.showInside();
  }

  saying() {
    const { view, answer } = this;
    if (view.task === "classifier") return [make("strong", {}, view.classes[0]?.label ?? "")];
    const text = make("bdi", {}, answer?.text || "(nothing)");
    if (view.task !== "language_model") return [text];
    return [make("bdi", { class: "quiet" }, view.text), text];
  }

  /** Displays `words` while it awaits `ask()`; returns the result, or `null` after an error, which is displayed. */
  async load(words, ask) {
    this.status.className = "quiet";
    this.status.textContent = words;
    try {
      const received = await ask();
      this.status.textContent = "";
      return received;
    } catch (error) {
      this.status.className = error.name === "AbortError" ? "quiet" : "error";
      this.status.textContent = error.name === "AbortError" ? "Cancelled." : error.message;
      return null;
    }
  }

  showInside() {
    const all = attentions(this.view, this.answer);
    const kinds = Object.keys(all);
    if (!kinds.length) {
      this.controls.replaceChildren();
      this.inside.replaceChildren(make("p", {}, "This model has no attention to show."));
      return;
    }
    this.strips = new Strips((side, index, isChoice) => this.lookAt(side, index, isChoice));
    this.caption = make("p", { class: "caption" });
    this.stepPlace = make("div", {});
    this.details = new Details();
    this.matrix = new Matrix((row) => this.lookAt("rows", row, true));
    this.grid = new Grid(
      (layer, head) => this.open({ layer, head }),
      (layer, head) => this.point(layer, head),
    );
    this.beside = make("div", { class: "beside" }, this.grid.element);
    this.below = make("div", { class: "below" });
    const tokens = make(
      "div",
      {},
      make("p", { class: "quiet" }, HINT),
      this.strips.element,
      this.caption,
      this.stepPlace,
      this.details.element,
    );
    this.sides = make("div", { class: "sides" }, tokens, this.beside, this.below);
    this.inside.replaceChildren(this.sides, this.saving());
    const kind = kinds.includes(this.wanted.kind) ? this.wanted.kind : kinds[0];
    this.showKind(kind, this.wanted);
  }

  /** Shows a kind of attention, with the settings `wanted` or the defaults. */
  showKind(kind, wanted = {}) {
    const { state } = this;
    state.kind = kind;
    const { layers, heads } = this.attention;
    state.layer = wholeNumber(String(wanted.layer ?? ""), 0, layers.length - 1, layers.length - 1);
    state.head = wholeNumber(String(wanted.head ?? ""), 0, heads - 1, "mean");
    this.tokens = sides(this.view, this.answer, kind);
    const predictions = this.predictions();
    const [side, token] = String(wanted.token ?? "").split(":");
    state.side = side === "columns" ? side : "rows";
    state.token = wholeNumber(token, 0, this.tokens[state.side].length - 1, null);
    state.step = predictions ? wholeNumber(String(wanted.step ?? ""), 0, this.tokens.rows.length, 0) : 0;
    this.controls.replaceChildren(...this.makeControls());
    this.steps = predictions ? new Steps(this.tokens.rows, this.given(), (step) => this.setStep(step)) : null;
    this.stepPlace.replaceChildren(...(this.steps ? [this.steps.element] : []));
    const spoken = predictions?.map(({ log_prob: logProb }) => probability(logProb)) ?? [];
    this.strips.show(this.tokens, titles(kind, this.view.task), this.given(), spoken);
    const isWide = this.tokens.columns.length > MOST_BESIDE;
    this.sides.classList.toggle("wide", isWide);
    (layers.length * heads === 1 && !isWide ? this.beside : this.below).append(this.matrix.element);
    this.grid.show(this.attention, kind, this.tokens);
    this.open({});
    this.setStep(state.step);
    const visit = (row) => this.lookAt(row === null ? null : "rows", row, false);
    if (state.token === null) tour(this.first(), this.tokens.rows.length, visit);
    this.loadMissing();
  }

  given() {
    return this.state.kind === "encoder" ? 0 : (this.answer?.given ?? 0);
  }

  /** The prediction of each row, if rows were predicted; else `null`. */
  predictions() {
    const written = this.state.kind === "encoder" ? [] : (this.answer?.predictions ?? []);
    return written.length ? written : null;
  }

  makeControls() {
    const { view, state, attention } = this;
    const kinds = Object.keys(attentions(view, this.answer)).map((kind) => [kind, KIND_NAMES[kind]]);
    const choice =
      kinds.length > 1
        ? makeChoice("Attention", `kind-${this.name}`, kinds, state.kind, (kind) => this.chooseKind(kind))
        : null;
    const numbers = (word, count) =>
      Array.from({ length: count }, (_, index) => [String(index), `${word} ${index + 1}`]);
    const heads = [["mean", "mean of heads"], ...numbers("head", attention.heads)];
    this.layerSelect = makeSelect("Layer", numbers("layer", attention.layers.length), String(state.layer), (value) =>
      this.open({ layer: Number(value) }),
    );
    this.headSelect = makeSelect("Head", heads, String(state.head), (value) =>
      this.open({ head: value === "mean" ? value : Number(value) }),
    );
    choice?.classList.add("row");
    const selects = [
      attention.layers.length > 1 && this.layerSelect.label,
      attention.heads > 1 && this.headSelect.label,
    ].filter(Boolean);
    return [choice, selects.length ? make("div", { class: "row" }, ...selects) : null].filter(Boolean);
  }

  chooseKind(kind) {
    this.stop();
    this.showKind(kind);
  }

  /** Shows the tokens up to a step, and the attention of that step; 0 means all tokens. */
  setStep(step) {
    const { state } = this;
    state.step = step;
    this.strips.reveal(step || this.tokens.rows.length);
    this.steps?.show(step);
    if (step) this.lookAt("rows", step - 1, true);
    else this.lookAt(state.side, state.token, true);
  }

  /** Stops playing the steps. */
  stop() {
    this.steps?.stop();
  }

  /** Opens a layer or a head, or both. */
  open(changes) {
    Object.assign(this.state, changes);
    const { layer, head } = this.state;
    this.layerSelect.select.value = String(layer);
    this.headSelect.select.value = String(head);
    this.grid.mark(layer, head);
    this.picture = picture(this.attention, layer, head);
    this.pointed = null;
    this.matrix.element.hidden = this.picture === null;
    if (this.picture) this.matrix.show(this.picture, this.tokens, this.title());
    this.lookAt(this.state.side, this.state.token, true);
  }

  /** Shows the lines of a head while the pointer is on its small picture; `null` shows those of the open one. */
  point(layer, head) {
    const pointed = layer === null ? null : picture(this.attention, layer, head);
    this.pointed = pointed && { picture: pointed, layer, head };
    this.lookAt(null);
  }

  /** The row that is shown before one is chosen: the first generated token, or the first that is not special. */
  first() {
    const { rows } = this.tokens;
    const first = this.given() || rows.findIndex((token) => !isSpecial(token));
    return rows.length ? Math.max(0, Math.min(rows.length - 1, first)) : null;
  }

  /** Shows what a token attends to; a side of `null` means the chosen token, or the first. */
  lookAt(side, index, isChoice) {
    const start = performance.now();
    const { state, tokens } = this;
    if (isChoice) Object.assign(state, { side: side ?? "rows", token: index });
    const chosen = state.token === null ? ["rows", this.first()] : [state.side, state.token];
    const [from, at] = side === null || index === null ? chosen : [side, index];
    const lit = this.pointed ?? { ...state, picture: this.picture };
    const isLit = at !== null && lit.picture !== null;
    if (isLit) this.strips.light(lit.picture, from, at);
    else this.strips.dark();
    this.caption.setAttribute("aria-live", isChoice ? "polite" : "off");
    this.caption.replaceChildren(...(isLit ? [...captionOf(lit.picture, tokens, from, at), this.where(lit)] : []));
    if (isChoice) this.strips.choose(state.side, state.token);
    this.matrix.choose(from === "rows" ? at : null, from === "columns" ? at : null);
    this.details.element.hidden = at === null;
    if (at !== null)
      this.details.show(lit.picture, tokens, from, at, from === "rows" ? this.predictions()?.[at] : null);
    if (isChoice) this.onChange();
    performance.measure("explorer-redraw", { start, end: performance.now() });
  }

  /** Returns the names of layer and head, if there are several. */
  where({ layer, head }) {
    const { layers, heads } = this.attention;
    const parts = [
      layers.length > 1 && `layer ${layer + 1}`,
      heads > 1 && (head === "mean" ? `mean of ${heads} heads` : `head ${head + 1}`),
    ];
    const words = parts.filter(Boolean).join(", ");
    return make("span", { class: "quiet" }, words && ` (${words})`);
  }

  /** Loads the missing layers one by one, beginning with the open one. */
  async loadMissing() {
    const { view, answer, state } = this;
    if (!this.source.layer) return;
    const isHere = () => this.answer === answer && this.view === view && this.element.isConnected;
    const all = Object.values(attentions(view, answer));
    const count = Math.max(...all.map(({ layers }) => layers.length));
    const missing = () => {
      const open = [state.layer, ...Array(count).keys()];
      return open.find((layer) => all.some(({ layers }) => layers[layer] === null));
    };
    if (this.loading === answer) return;
    this.loading = answer;
    for (let layer = missing(); layer !== undefined && isHere(); layer = missing()) {
      const parts = await this.load(`Asking for layer ${layer + 1} of ${count} …`, () =>
        this.source.layer(answer?.hypothesis ?? null, layer),
      );
      if (!parts) break;
      addLayer(view, answer, layer, parts);
      if (isHere()) this.grid.refresh();
      if (isHere() && layer === state.layer) this.open({});
    }
    this.loading = undefined;
  }

  /** Draws everything again, in the current colours. */
  repaint() {
    if (!this.picture) return;
    this.matrix.draw();
    this.grid.repaint();
    this.strips.redraw?.();
  }

  title() {
    const { view, answer, state } = this;
    const head = state.head === "mean" ? "mean of heads" : `head ${state.head + 1}`;
    const said = answer ? answer.text : (view.classes[0]?.label ?? "");
    return `${view.model}: ${view.text} → ${said} (${state.kind}, layer ${state.layer + 1}, ${head})`;
  }

  saving() {
    const name = () => `attention-${this.view.model}-${this.state.kind}`.replace(/[^\p{L}\p{N}._-]+/gu, "-");
    const button = (text, action) => make("button", { type: "button", click: action }, text);
    const open = (save) => () => this.picture && save(this.picture, this.tokens, this.title(), name());
    const saves = [
      button("Save PNG", open(savePng)),
      button("Save SVG", open(saveSvg)),
      button("Save JSON", () => saveJson(this.view, name())),
    ];
    return make("div", { class: "row", role: "group", "aria-label": "Save and share" }, ...saves, linkButton());
  }
}

function titles(kind, task) {
  if (kind === "encoder") return { columns: "Attended to: the text", rows: "Attending: the text" };
  const columns = kind === "cross" ? "Attended to: the text" : "Attended to: what stood before";
  return {
    columns,
    rows:
      task === "language_model"
        ? "Attending: what is predicted, the text and its continuation"
        : "Attending: what is written",
  };
}
