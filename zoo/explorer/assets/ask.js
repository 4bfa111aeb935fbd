// Sends requests to the server of this page.

const GONE = "The explorer itself does not answer. Is `python -m export.explore` still running?";

let pending = 0;
let listener = () => {};

/** Calls a function when requests begin or all have ended, with whether any is in progress. */
export function onBusy(newListener) {
  listener = newListener;
}

/** Returns the server's response, JSON; throws an error with a message for the user. */
export async function ask(path, body, signal) {
  listener(++pending > 0);
  try {
    return await received(path, body, signal);
  } finally {
    listener(--pending > 0);
  }
}

async function received(path, body, signal) {
  const request =
    body === null
      ? {}
      : { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  let response;
  try {
    response = await fetch(`api/${path}`, { ...request, signal, cache: "no-store" });
  } catch (error) {
    throw error.name === "AbortError" ? error : new Error(GONE);
  }
  const content = await response.json().catch((error) => {
    if (error.name === "AbortError") throw error;
    return {};
  });
  if (!response.ok) throw new Error(content.error ?? `The explorer failed: ${response.status}.`);
  return content;
}
