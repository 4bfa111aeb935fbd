// The answers of a model to choose from, or the list of its classes.

import { bar } from "./details.js";
import { make, makeChoice } from "./dom.js";
import { isLog, percent, probabilities, shown } from "./words.js";

const MOST_CLASSES = 6;
const ORDER = "Answers in the order of the search, which favours longer ones, with their probabilities";

/** Returns a list of classes, or a choice of answers that calls `onChoose(number)`; `null` if there is no choice. */
export function answersOf(view, name, chosen, onChoose) {
  if (view.classes.length) return classesOf(view.classes);
  if (view.answers.length < 2) return null;
  const numbers = probabilities(view.answers.map((answer) => answer.log_prob));
  const options = view.answers.map((answer, index) => {
    const text = make("bdi", { class: "text" }, answer.text || "(nothing)");
    return [String(index), text, make("span", { class: "number" }, numbers[index])];
  });
  const legend = numbers.some(isLog) ? `${ORDER} (log: their natural logarithms)` : ORDER;
  const choice = makeChoice(legend, `answer-${name}`, options, String(chosen), (value) => onChoose(Number(value)));
  choice.classList.add("answers");
  return choice;
}

function classesOf(classes) {
  const rows = classes
    .slice(0, MOST_CLASSES)
    .map(({ label, probability }) => bar(shown(label), probability, percent(probability)));
  if (classes.length > MOST_CLASSES)
    rows.push(make("li", { class: "quiet" }, `and ${classes.length - MOST_CLASSES} more`));
  return make("ol", { class: "classes bars", "aria-label": "Classes and their probabilities" }, ...rows);
}
