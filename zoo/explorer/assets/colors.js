// The colours of weights, for the light and the dark theme.

const SCALES = {
  light: ["#ffffff", "#cfe0fa", "#7fb0f0", "#2f6fde", "#0d2f73"],
  dark: ["#191d23", "#4a3322", "#94602a", "#e0a03c", "#fff3d0"],
};
const STEPS = 256;
const tables = {};
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Calls a function when the theme changes. */
export function onTheme(listener) {
  dark.addEventListener("change", listener);
}

/** Returns the colours of weights from 0 to 1, 256 of them, as 32-bit numbers for image data (little-endian). */
export function colorTable() {
  const theme = dark.matches ? "dark" : "light";
  tables[theme] ??= Uint32Array.from({ length: STEPS }, (_, step) => {
    const [red, green, blue] = mixed(SCALES[theme], step / (STEPS - 1));
    return (255 << 24) | (blue << 16) | (green << 8) | red;
  });
  return tables[theme];
}

/** Returns the colour of a weight between 0 and 1, for SVG. */
export function colorOf(weight) {
  return `rgb(${mixed(SCALES[dark.matches ? "dark" : "light"], weight).join(" ")})`;
}

function mixed(stops, place) {
  const at = Math.max(0, Math.min(1, place)) * (stops.length - 1);
  const first = Math.min(Math.floor(at), stops.length - 2);
  const [from, to] = [channels(stops[first]), channels(stops[first + 1])];
  return from.map((value, channel) => Math.round(value + (to[channel] - value) * (at - first)));
}

function channels(color) {
  return [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
}

/** Returns a colour of the page. */
export function pageColor(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}
