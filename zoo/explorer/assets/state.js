// Stores the state of the page in the address after `#`, so that a link restores it.

import { make } from "./dom.js";

const SECONDS_OF_THANKS = 2;

/** Returns the settings in the address, strings by name. */
export function readAddress() {
  return Object.fromEntries(new URLSearchParams(location.hash.slice(1)));
}

/** Writes settings into the address, without an entry in the history; `null` settings are omitted. */
export function writeAddress(settings) {
  const present = Object.entries(settings).filter(([, value]) => value !== null && value !== undefined);
  try {
    history.replaceState(null, "", `#${new URLSearchParams(present)}`);
  } catch {
    // A frame in a notebook has no address.
  }
}

/** Returns a button that copies a link to the current state; `null` in a file or a notebook, which have no link. */
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

/** Returns an integer between inclusive bounds, or `otherwise`. */
export function wholeNumber(text, least, most, otherwise) {
  const number = /^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN;
  return number >= least && number <= most ? number : otherwise;
}
