// Creates elements. Text always becomes text nodes: a model's output is never markup.

/** Returns a new element; `properties` are attributes, or listeners if they are functions; `null` ones are omitted. */
export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false)
      element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}

/** Returns a select with options `[value, text]`. */
export function makeSelect(label, options, value, onChange) {
  const select = make("select", { change: () => onChange(select.value) });
  for (const [optionValue, text] of options) select.append(make("option", { value: optionValue }, text));
  select.value = value;
  return { label: make("label", {}, `${label} `, select), select };
}

/** Returns a fieldset of radio buttons for options `[value, ...content]`. */
export function makeChoice(legend, name, options, value, onChange) {
  const labels = options.map(([optionValue, ...content]) => {
    const input = make("input", { type: "radio", name, value: optionValue, change: () => onChange(optionValue) });
    input.checked = optionValue === value;
    return make("label", {}, input, ...content);
  });
  return make("fieldset", {}, make("legend", {}, legend), ...labels);
}

/** Sets the weight of an element's style, a number between 0 and 1. */
export function setWeight(element, weight) {
  if (weight > 0) element.style.setProperty("--weight", Math.min(1, weight).toFixed(3));
  else element.style.removeProperty("--weight");
}
