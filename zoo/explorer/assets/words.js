// How tokens and numbers are written.

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const LETTER = /\p{L}/u;
const SPECIAL = /^<[^<>]*>$/;
const NAMES = { " ": "␣", "\u00a0": "␣", "\n": "⏎", "\t": "⇥" };

/** Returns what to show of a token: nothing invisible stays so, and nothing turns the direction of its neighbours. */
export function shown(token) {
  if (token === "") return "∅";
  const onlyInvisible = /^[\p{C}\p{Z}]+$/u.test(token);
  const text = token.replace(/[\p{Z}\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu, (character) =>
    NAMES[character] ?? (/\p{Zs}/u.test(character) ? "␣" : codePoint(character)),
  );
  if (onlyInvisible) return [...text].map((character) => (/[\p{C}\p{Z}]/u.test(character) ? codePoint(character) : character)).join("");
  return /^\p{M}/u.test(text) ? `◌${text}` : text;
}

function codePoint(character) {
  return `[${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Returns `"rtl"` or `"ltr"`: the direction of the first letter of tokens, special ones apart. */
export function direction(tokens) {
  for (const token of tokens) {
    const letter = SPECIAL.test(token) ? null : LETTER.exec(token);
    if (letter) return RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
  }
  return "ltr";
}

/** Returns a share as percents. */
export function percent(share) {
  if (share === null || Number.isNaN(share)) return "–";
  const hundredths = 100 * share;
  return `${hundredths >= 9.95 || hundredths === 0 ? hundredths.toFixed(0) : hundredths >= 0.095 ? hundredths.toFixed(1) : "<0.1"} %`;
}

/** Returns a log probability as percents. */
export function percentOfLog(logProb) {
  return logProb === null ? "–" : percent(Math.exp(logProb));
}
