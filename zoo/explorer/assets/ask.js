// Asks the server that this page came from.

const GONE = "The explorer itself does not answer. Is `python -m export.explore` still running?";

let underWay = 0;
let listener = () => {};

/** Calls a function, with whether anything is being asked, whenever that changes. */
export function onBusy(newListener) {
  listener = newListener;
}

/** Returns what the server answers, JSON; throws an error whose message a person can use. */
export async function ask(path, body, signal) {
  listener(++underWay > 0);
  try {
    return await received(path, body, signal);
  } finally {
    listener(--underWay > 0);
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
