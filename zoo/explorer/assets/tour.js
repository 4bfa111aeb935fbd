// An animation on opening: the lines move from token to token once, until the user interacts with the page.

const [SECONDS_A_TOKEN, MOST_STOPS] = [0.8, 6]; // under five seconds, so that no stop button is required
const TOUCHES = ["pointerdown", "pointermove", "wheel", "keydown", "focusin", "change"];

let isOver = matchMedia("(prefers-reduced-motion: reduce)").matches;
const timers = new Set();

function endTours() {
  isOver = true;
  for (const timer of timers) clearInterval(timer);
  timers.clear();
}

for (const event of TOUCHES) addEventListener(event, endTours, { capture: true, once: true, passive: true });

/** Calls `visit(index)` for the first indices after `first`, below `count`, one after another, then `visit(null)`. */
export function tour(first, count, visit) {
  if (isOver || count - first < 2) return;
  let at = first;
  const timer = setInterval(() => {
    at += 1;
    if (at < Math.min(count, first + MOST_STOPS)) return visit(at);
    endTours();
    return visit(null);
  }, 1000 * SECONDS_A_TOKEN);
  timers.add(timer);
}
