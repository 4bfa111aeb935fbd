// The details of one token: its probability, its alternatives and its attention.

import { make, setWeight } from "./dom.js";
import { largestOf, weightsOf } from "./data.js";
import { percent, plain, probability, shown } from "./words.js";

const MOST_LOOKS = 6;

export class Details {
  constructor() {
    this.title = make("h3", {}, "One token");
    this.probability = make("p", {});
    this.alternatives = make("ol", { class: "alternatives bars", "aria-label": "The most probable tokens here" });
    this.lookTitle = make("h3", {});
    this.looks = make("ol", { class: "looks bars", "aria-label": "The largest weights" });
    const left = make("div", {}, this.title, this.probability, this.alternatives);
    this.element = make(
      "section",
      { class: "columns", "aria-label": "The chosen token" },
      left,
      make("div", {}, this.lookTitle, this.looks),
    );
  }

  /** Shows a token of a side, and what it attends to or is attended to by in a picture (or `null`). */
  show(picture, tokens, side, index, prediction) {
    const other = side === "rows" ? "columns" : "rows";
    this.title.textContent = `“${shown(tokens[side][index])}”, number ${index + 1} of ${tokens[side].length}`;
    this.probability.textContent = prediction
      ? `Probability ${probability(prediction.log_prob)}, given what is before it`
      : "";
    this.alternatives.hidden = !prediction;
    const alternatives = prediction?.alternatives ?? [];
    this.alternatives.replaceChildren(
      ...alternatives.map(([token, logProb]) =>
        bar(shown(token), Math.exp(logProb ?? -Infinity), probability(logProb)),
      ),
    );
    this.lookTitle.textContent = side === "rows" ? "It attends to" : "It is attended to by";
    const weights = picture ? weightsOf(picture, side, index) : new Float32Array();
    const looks = largestOf(weights, MOST_LOOKS);
    this.looks.replaceChildren(
      ...looks.map((place) => bar(plain(tokens[other][place]), weights[place], percent(weights[place]))),
    );
    if (!looks.length) this.looks.append(make("li", { class: "quiet" }, "nothing"));
  }
}

/** Returns a row of a list: a text, a bar and a number. */
export function bar(text, share, number) {
  const strip = make("span", { class: "bar", "aria-hidden": "true" });
  setWeight(strip, share);
  return make("li", {}, make("span", { class: "text" }, text), strip, make("span", { class: "number" }, number));
}
