// The first look: lines go from token to token by themselves, once, until somebody touches the page.

const [SECONDS_A_TOKEN, MOST_STOPS] = [0.8, 6]; // under five seconds, so that it needs no button that stops it
const TOUCHES = ["pointerdown", "pointermove", "wheel", "keydown", "focusin", "change"];

let isOver = matchMedia("(prefers-reduced-motion: reduce)").matches;
const timers = new Set();

function endTours() {
  isOver = true;
  for (const timer of timers) clearInterval(timer);
  timers.clear();
}

for (const event of TOUCHES) addEventListener(event, endTours, { capture: true, once: true, passive: true });

/** Calls `visit(index)` for some of the places from `first` to `count`, one after the other, and `rest()` at the end. */
export function tour(first, count, visit, rest) {
  if (isOver || count - first < 2) return;
  let at = first;
  const timer = setInterval(() => {
    at += 1;
    if (at < Math.min(count, first + MOST_STOPS)) return visit(at);
    endTours();
    return rest();
  }, 1000 * SECONDS_A_TOKEN);
  timers.add(timer);
}
