// Decoding step by step: buttons, a slider, and a timer that plays the steps.

import { make } from "./dom.js";
import { plain } from "./words.js";

const SECONDS_A_STEP = 0.7;

export class Steps {
  /** The first `given` tokens are the prompt; `onStep(step)` is called for the chosen step, 0 for all steps. */
  constructor(tokens, given, onStep) {
    [this.tokens, this.given, this.onStep] = [tokens, given, onStep];
    const count = tokens.length;
    const button = (text, label, action) =>
      make("button", { type: "button", "aria-label": label, title: label, click: action }, text);
    const by = (difference) => () => onStep(Math.max(0, Math.min(count, this.step + difference)));
    this.slider = make("input", {
      type: "range",
      min: 0,
      max: count,
      step: 1,
      "aria-label": "Step of decoding, 0 for all",
      input: () => onStep(Number(this.slider.value)),
    });
    this.playButton = button("▶", "Play the steps", () => this.play());
    this.text = make("span", { class: "quiet" });
    const parts = [
      button("◀", "One step back", by(-1)),
      this.playButton,
      button("▶|", "One step on", by(1)),
      this.slider,
      this.text,
    ];
    this.element = make("div", { class: "row", role: "group", "aria-label": "Steps of decoding" }, ...parts);
  }

  /** Displays the number of the step. */
  show(step) {
    this.step = step;
    const count = this.tokens.length;
    this.slider.value = step;
    this.slider.setAttribute("aria-valuetext", step ? `step ${step} of ${count}` : "all steps");
    this.text.textContent = step ? `step ${step} of ${count}: “${plain(this.tokens[step - 1])}”` : `all ${count} steps`;
  }

  play() {
    if (this.timer) return this.stop();
    const count = this.tokens.length;
    this.playButton.textContent = "❚❚";
    this.onStep(this.step >= count ? 1 : Math.max(this.step, this.given) + 1);
    this.timer = setInterval(
      () => (this.step < count ? this.onStep(this.step + 1) : this.stop()),
      1000 * SECONDS_A_STEP,
    );
    return undefined;
  }

  /** Stops playing the steps. */
  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.playButton.textContent = "▶";
  }
}
