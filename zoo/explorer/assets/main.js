// The page: a form for the text and the models, and a panel for each model.

import { ask, onBusy } from "./ask.js";
import { onTheme } from "./colors.js";
import { make, makeSelect } from "./dom.js";
import { Panel } from "./panel.js";
import { readAddress, wholeNumber, writeAddress } from "./state.js";

const form = document.getElementById("question");
const status = document.getElementById("status");
const place = document.getElementById("panels");
const data = document.getElementById("explorer-data");
const NONE = "";

let panels = [];
let chosen = {}; // the settings in the address, besides those of the panels

/** Shows views side by side; `sources` are the sources of their panels. */
function show(views, sources, settings) {
  for (const panel of panels) panel.stop();
  const own = [settings, besideSettings(settings)];
  panels = [];
  const remember = () => writeAddress({ ...chosen, ...panels[0]?.settings, ...withSuffix(panels[1]?.settings ?? {}) });
  place.replaceChildren();
  place.classList.toggle("two", views.length > 1);
  views.forEach((view, index) => {
    const panel = new Panel(
      view,
      index,
      own[index],
      sources[index],
      () => panels.length === views.length && remember(),
    );
    panels.push(panel);
    place.append(panel.element);
  });
  for (const panel of panels) panel.build(); // after all panels are attached and have a size
  remember();
}

function withSuffix(settings) {
  return Object.fromEntries(Object.entries(settings).map(([name, value]) => [`${name}.2`, value]));
}

function besideSettings(settings) {
  const suffixed = Object.entries(settings).filter(([name]) => name.endsWith(".2"));
  return Object.fromEntries(suffixed.map(([name, value]) => [name.slice(0, -2), value]));
}

function say(words, isError = false) {
  status.className = isError ? "error" : "quiet";
  status.textContent = words;
}

/** Starts a page that contains its views. */
function startWithViews(views) {
  const names = views.map((view, index) => [String(index), `${view.text || "(nothing)"} – ${view.model}`]);
  const open = (settings) => {
    const first = wholeNumber(settings.view, 0, views.length - 1, 0);
    const beside = wholeNumber(settings.beside, 0, views.length - 1, null);
    chosen = { view: first, beside };
    const both = beside === null ? [views[first]] : [views[first], views[beside]];
    show(
      both,
      both.map(() => ({})),
      settings,
    );
  };
  const settings = readAddress();
  const view = makeSelect("Text", names, settings.view ?? "0", (value) =>
    open({ view: value, beside: chosen.beside?.toString() }),
  );
  const beside = makeSelect("beside it", [[NONE, "nothing"], ...names], settings.beside ?? NONE, (value) =>
    open({ view: String(chosen.view), beside: value }),
  );
  if (views.length > 1) form.append(make("div", { class: "row" }, view.label, beside.label));
  else form.append(make("p", { class: "said" }, make("bdi", {}, views[0].text)));
  open(settings);
}

/** Starts a page that sends requests to served models. */
async function startWithServer() {
  let served;
  try {
    served = await ask("models", null);
  } catch (error) {
    say(error.message, true);
    return;
  }
  const settings = readAddress();
  const models = served.models.map((name) => [name, name]);
  const known = (name) => served.models.includes(name);
  const model = makeSelect("Model", models, known(settings.model) ? settings.model : served.models[0], () => {});
  const beside = makeSelect(
    "beside it",
    [[NONE, "nothing"], ...models],
    known(settings.beside) ? settings.beside : NONE,
    () => {},
  );
  const text = make("textarea", {
    rows: 2,
    dir: "auto",
    "aria-label": "Text",
    placeholder: "Type a text",
    spellcheck: "false",
  });
  text.value = settings.text ?? served.text;
  const go = make("button", { class: "primary", type: "submit" }, "Ask");
  const cancel = make("button", { type: "button", disabled: true, click: () => restart() }, "Cancel");
  form.append(text, make("div", { class: "row" }, go, cancel, model.label, beside.label));
  onBusy((isBusy) => (cancel.disabled = !isBusy));
  let controller = new AbortController();
  let questions = 0;

  /** Cancels all requests. */
  function restart() {
    controller.abort();
    controller = new AbortController();
    return controller.signal;
  }

  async function question(wanted) {
    const signal = restart();
    const number = ++questions;
    say("Asking …");
    const asked = text.value;
    const names = [model.select.value, beside.select.value].filter((name) => name !== NONE);
    try {
      const views = await Promise.all(names.map((name) => ask("view", { model: name, text: asked }, signal)));
      if (number !== questions) return;
      say("");
      chosen = { text: asked, model: names[0], beside: names[1] ?? null };
      show(
        views,
        names.map((name) => source(name, asked)),
        wanted,
      );
    } catch (error) {
      if (number !== questions) return;
      restart(); // the other model's request
      say(error.name === "AbortError" ? "Cancelled." : error.message, error.name !== "AbortError");
    }
  }

  function source(name, asked) {
    return {
      answer: (hypothesis) => ask("answer", { model: name, text: asked, hypothesis }, controller.signal),
      layer: (hypothesis, layer) => ask("layer", { model: name, text: asked, hypothesis, layer }, controller.signal),
    };
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    question({});
  });
  text.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    question({});
  });
  if (text.value) await question(settings);
}

addEventListener("hashchange", () => location.reload()); // for a pasted link; the page's own changes do not fire this event
onTheme(() => panels.forEach((panel) => panel.repaint()));
if (data) startWithViews(JSON.parse(data.textContent));
else startWithServer();
