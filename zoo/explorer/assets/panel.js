// One model and one text: its answers, tokens, pictures, and what can be chosen among them.

import { make, makeChoice, makeSelect } from "./dom.js";
import { addLayer, attentions, KIND_NAMES, picture, sides } from "./data.js";
import { bar, Details } from "./details.js";
import { Grid } from "./grid.js";
import { Matrix } from "./matrix.js";
import { saveJson, savePng, saveSvg } from "./save.js";
import { wholeNumber } from "./state.js";
import { Strips } from "./tokens.js";
import { percent, percentOfLog, shown } from "./words.js";

const SECONDS_A_STEP = 0.7;
const MOST_CLASSES = 12;

export class Panel {
  /**
   * `settings` are what the address says, strings by name. `source.answer(hypothesis)` and `source.layer(hypothesis,
   * layer)` ask for what the view has not yet; `onChange()` is called when another thing is shown.
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

  /** What the address should say of this panel. */
  get settings() {
    const { answer, kind, layer, head, side, token, step } = this.state;
    return { answer: answer || null, kind, layer, head, token: token === null ? null : `${side}:${token}`, step: step || null };
  }

  /** Fills the panel, which stands in the page by now. */
  build() {
    const { view } = this;
    this.said = make("p", { class: "said" });
    this.controls = make("div", {});
    this.inside = make("div", {});
    const notes = view.notes.map((note) => make("p", { class: "quiet" }, note));
    const parts = [make("h2", {}, view.model), this.said, this.answers(), ...notes, this.status, this.controls, this.inside];
    this.element.replaceChildren(...parts.filter(Boolean));
    this.showAnswer();
  }

  /** Returns the answers or the classes, to be chosen from or to be read. */
  answers() {
    const { view } = this;
    if (view.classes.length) {
      const rows = view.classes.slice(0, MOST_CLASSES).map(({ label, probability }) => bar(label, probability, percent(probability)));
      if (view.classes.length > MOST_CLASSES) rows.push(make("li", { class: "quiet" }, `and ${view.classes.length - MOST_CLASSES} more`));
      return make("ol", { class: "classes bars", "aria-label": "Classes and their probabilities" }, ...rows);
    }
    if (view.answers.length < 2) return null;
    const options = view.answers.map((answer, index) => {
      const text = make("bdi", { class: "text" }, answer.text || "(nothing)");
      return [String(index), text, make("span", { class: "number" }, percentOfLog(answer.log_prob))];
    });
    const choose = (value) => this.chooseAnswer(Number(value));
    const choice = makeChoice("Answers in the order of the search, which favours longer ones, with their probabilities", `answer-${this.name}`, options, String(this.state.answer), choose);
    choice.classList.add("answers");
    return choice;
  }

  chooseAnswer(number) {
    this.stop();
    this.state.answer = number;
    this.wanted = { ...this.settings, token: null, step: null };
    this.showAnswer();
  }

  /** Shows the answer that is chosen; asks for it first if nobody has. */
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

  /** Runs what asks the server and says so; returns what came, or `null` after an error, which is shown. */
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
    this.details = new Details();
    this.matrix = new Matrix((row) => this.lookAt("rows", row, true));
    this.grid = new Grid((layer, head) => this.open({ layer, head }));
    const { strips, details, matrix, grid } = this;
    const pictures = make("div", { class: "pictures" }, matrix.element, grid.element);
    this.inside.replaceChildren(strips.element, details.element, pictures, this.saving());
    const kind = kinds.includes(this.wanted.kind) ? this.wanted.kind : kinds[0];
    this.showKind(kind, this.wanted);
  }

  /** Shows a kind of attention, from what `wanted` says or from the beginning. */
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
    const spoken = predictions?.map(({ log_prob: logProb }) => percentOfLog(logProb)) ?? [];
    this.strips.show(this.tokens, titles(kind, this.view.task), this.given(), spoken);
    this.grid.show(this.attention);
    this.open({});
    this.setStep(state.step);
    this.loadMissing();
  }

  given() {
    return this.state.kind === "encoder" ? 0 : (this.answer?.given ?? 0);
  }

  /** What is known of each row, where rows were predicted; else `null`. */
  predictions() {
    const written = this.state.kind === "encoder" ? [] : (this.answer?.predictions ?? []);
    return written.length ? written : null;
  }

  makeControls() {
    const { view, state, attention } = this;
    const kinds = Object.keys(attentions(view, this.answer)).map((kind) => [kind, KIND_NAMES[kind]]);
    const choice = kinds.length > 1 ? makeChoice("Attention", `kind-${this.name}`, kinds, state.kind, (kind) => this.chooseKind(kind)) : null;
    const numbers = (word, count) => Array.from({ length: count }, (_, index) => [String(index), `${word} ${index + 1}`]);
    this.layerSelect = makeSelect("Layer", numbers("layer", attention.layers.length), String(state.layer), (value) => this.open({ layer: Number(value) }));
    const heads = [["mean", "mean of heads"], ...numbers("head", attention.heads)];
    this.headSelect = makeSelect("Head", heads, String(state.head), (value) => this.open({ head: value === "mean" ? value : Number(value) }));
    choice?.classList.add("row");
    const selects = make("div", { class: "row" }, this.layerSelect.label, this.headSelect.label);
    return [choice, selects, this.predictions() ? this.stepper() : null].filter(Boolean);
  }

  chooseKind(kind) {
    this.stop();
    this.showKind(kind);
  }

  stepper() {
    const count = this.tokens.rows.length;
    this.slider = make("input", { type: "range", min: 0, max: count, step: 1, "aria-label": "Step of decoding, 0 for all", input: () => this.setStep(Number(this.slider.value)) });
    const go = (text, label, action) => make("button", { type: "button", "aria-label": label, title: label, click: action }, text);
    this.playButton = go("▶", "Play the steps", () => this.play());
    this.stepText = make("span", { class: "quiet" });
    const by = (difference) => () => this.setStep(Math.max(0, Math.min(count, this.state.step + difference)));
    return make("div", { class: "row", role: "group", "aria-label": "Steps of decoding" }, go("◀", "One step back", by(-1)), this.playButton, go("▶|", "One step on", by(1)), this.slider, this.stepText);
  }

  /** Shows what was written up to a step, and the attention of that step; 0 is everything. */
  setStep(step) {
    const { state } = this;
    state.step = step;
    const count = this.tokens.rows.length;
    this.strips.reveal(step || count);
    if (this.slider && this.predictions()) {
      this.slider.value = step;
      this.slider.setAttribute("aria-valuetext", step ? `step ${step} of ${count}` : "all steps");
      this.stepText.textContent = step ? `step ${step} of ${count}: “${shown(this.tokens.rows[step - 1])}”` : `all ${count} steps`;
    }
    if (step) this.lookAt("rows", step - 1, true);
    else this.lookAt(state.side, state.token, true);
  }

  play() {
    if (this.timer) return this.stop();
    const count = this.tokens.rows.length;
    this.playButton.textContent = "❚❚";
    this.setStep(this.state.step >= count ? 1 : Math.max(this.state.step, this.given()) + 1);
    this.timer = setInterval(() => (this.state.step < count ? this.setStep(this.state.step + 1) : this.stop()), 1000 * SECONDS_A_STEP);
    return undefined;
  }

  /** Ends what goes on by itself. */
  stop() {
    clearInterval(this.timer);
    this.timer = null;
    if (this.playButton) this.playButton.textContent = "▶";
  }

  /** Opens a layer or a head, or both. */
  open(changes) {
    Object.assign(this.state, changes);
    const { layer, head } = this.state;
    this.layerSelect.select.value = String(layer);
    this.headSelect.select.value = String(head);
    this.grid.mark(layer, head);
    this.picture = picture(this.attention, layer, head);
    this.matrix.element.hidden = this.picture === null;
    if (this.picture) this.matrix.show(this.picture, this.tokens, this.title());
    this.lookAt(this.state.side, this.state.token, true);
  }

  /** Shows what a token looks at; `null` for none, or for the one that was chosen before. */
  lookAt(side, index, isChoice) {
    const start = performance.now();
    const { state } = this;
    if (isChoice) Object.assign(state, { side: side ?? "rows", token: index });
    const [from, at] = side === null ? [state.side, state.token] : [side, index];
    if (at !== null && this.picture) this.strips.light(this.picture, from, at);
    else this.strips.dark();
    if (isChoice) this.strips.choose(state.side, at);
    this.matrix.choose(from === "rows" ? at : null, from === "columns" ? at : null);
    this.details.element.hidden = at === null;
    if (at !== null) this.details.show(this.picture, this.tokens, from, at, from === "rows" ? this.predictions()?.[at] : null);
    if (isChoice) this.onChange();
    performance.measure("explorer-redraw", { start, end: performance.now() });
  }

  /** Asks for layers that are not there yet, the open one first, one after the other. */
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
      const parts = await this.load(`Asking for layer ${layer + 1} of ${count} …`, () => this.source.layer(answer?.hypothesis ?? null, layer));
      if (!parts) break;
      addLayer(view, answer, layer, parts);
      if (isHere()) this.grid.refresh();
      if (isHere() && layer === state.layer) this.open({});
    }
    this.loading = undefined;
  }

  /** Draws everything anew, in the colours of now. */
  repaint() {
    if (!this.picture) return;
    this.matrix.draw();
    this.grid.repaint();
    this.strips.redraw?.();
  }

  title() {
    const { view, answer, state } = this;
    const head = state.head === "mean" ? "mean of heads" : `head ${state.head + 1}`;
    return `${view.model}: ${view.text} → ${answer ? answer.text : (view.classes[0]?.label ?? "")} (${state.kind}, layer ${state.layer + 1}, ${head})`;
  }

  saving() {
    const name = () => `attention-${this.view.model}-${this.state.kind}`.replace(/[^\p{L}\p{N}._-]+/gu, "-");
    const button = (text, action) => make("button", { type: "button", click: action }, text);
    const open = (save) => () => this.picture && save(this.picture, this.tokens, this.title(), name());
    return make("div", { class: "row", role: "group", "aria-label": "Save" }, button("Save PNG", open(savePng)), button("Save SVG", open(saveSvg)), button("Save JSON", () => saveJson(this.view, name())));
  }
}

function titles(kind, task) {
  if (kind === "encoder") return { columns: "Looked at: the text", rows: "Looking: the text" };
  const columns = kind === "cross" ? "Looked at: the text" : "Looked at: what stood before";
  return { columns, rows: task === "language_model" ? "Looking: what is predicted, the text and its continuation" : "Looking: what is written" };
}
