// What is shown, as the part of the address after `#`, so that a link leads to the very view.

import { make } from "./dom.js";

const SECONDS_OF_THANKS = 2;

/** Returns the settings in the address, strings by name. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Writes settings into the address, without an entry in the history; those that are `null` are left out. */
export function writeAddress(settings) {
  const known = Object.entries(settings).filter(([, value]) => value !== null && value !== undefined);
  try {
    history.replaceState(null, "", `#${new URLSearchParams(known)}`);
  } catch {
    // A frame in a notebook has no address of its own.
  }
}

/** Returns a button that copies a link to what is shown; `null` where no link leads: in a file, or in a notebook. */
export function linkButton() {
  if (!location.protocol.startsWith("http") || !navigator.clipboard) return null;
  const words = "Copy link";
  const button = make("button", { type: "button", "aria-live": "polite", click: copy }, words);
  async function copy() {
    try {
      await navigator.clipboard.writeText(location.href);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Copy it from the address bar";
    }
    setTimeout(() => (button.textContent = words), 1000 * SECONDS_OF_THANKS);
  }
  return button;
}

/** Returns a whole number between bounds, both included, or `otherwise`. */
export function wholeNumber(text, least, most, otherwise) {
  const number = /^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN;
  return number >= least && number <= most ? number : otherwise;
}
