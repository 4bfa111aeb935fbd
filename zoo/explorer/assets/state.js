// What is shown, as the part of the address after `#`, so that a link leads to the very view.

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

/** Returns a whole number between bounds, both included, or `otherwise`. */
export function wholeNumber(text, least, most, otherwise) {
  const number = /^\d{1,6}$/.test(text ?? "") ? Number(text) : NaN;
  return number >= least && number <= most ? number : otherwise;
}
