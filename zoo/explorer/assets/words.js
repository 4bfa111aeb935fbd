// Formats tokens and numbers as text.

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const LETTER = /\p{L}/u;
const OF_A_WORD = /[\p{L}\p{N}\p{M}]/u;
const WITHOUT_SPACES = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}\p{sc=Myanmar}]/u;
const BYTES = /^(?:<0x[0-9A-F]{2}>)+$/;
const SPECIAL = /^(?:<[^<>]*>|\[[A-Z]+\])$/;
const NAMES = { " ": "␣", "\u00a0": "␣", "\n": "⏎", "\t": "⇥" };
const LEAST_SHARE = 0.001; // the smallest share with a distinct text in percent
const LEAST_LOG = -1e6; // lower values mean “impossible”

/** Returns a token with visible spaces and control characters, without marks that change the writing direction. */
export function shown(token) {
  if (token === "") return "∅";
  const onlyInvisible = /^[\p{C}\p{Z}]+$/u.test(token);
  const text = token.replace(
    /[\p{Z}\p{Cc}\u200e\u200f\u202a-\u202e\u2066-\u2069]/gu,
    (character) => NAMES[character] ?? (/\p{Zs}/u.test(character) ? "␣" : codePoint(character)),
  );
  if (onlyInvisible)
    return [...text].map((character) => (/[\p{C}\p{Z}]/u.test(character) ? codePoint(character) : character)).join("");
  return /^\p{M}/u.test(text) ? `◌${text}` : text;
}

function codePoint(character) {
  return `[${character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
}

/** Returns a readable token: without the mark of a leading space, and bytes without brackets. */
export function plain(token) {
  if (BYTES.test(token)) return token.replace(/[<>]|0x/g, "");
  return /^▁+$/.test(token) ? "␣".repeat(token.length) : shown(token.replace(/^▁/, ""));
}

/** Returns whether a token is not part of a text: it begins, ends or separates texts. */
export function isSpecial(token) {
  return SPECIAL.test(token) && !BYTES.test(token);
}

/**
 * Returns for each token whether it continues the word of the previous one. The convention of the tokenizer is derived
 * from `all` tokens of a view: `▁` before words, `##` before their other pieces, or `@@` after each piece but the last.
 */
export function continues(tokens, all) {
  const starts = all.some((token) => /^▁[^▁]/u.test(token));
  const pieces = all.some((token) => /^##./u.test(token));
  const open = all.some((token) => /.@@$/u.test(token));
  return tokens.map((token, index) => {
    const before = tokens[index - 1];
    if (before === undefined || isSpecial(token) || isSpecial(before)) return false;
    if (BYTES.test(token) && BYTES.test(before)) return true;
    if ((pieces && /^##./u.test(token)) || (open && /.@@$/u.test(before))) return true;
    return (
      starts &&
      !token.startsWith("▁") &&
      OF_A_WORD.test(token) &&
      OF_A_WORD.test(before) &&
      !WITHOUT_SPACES.test(before + token)
    );
  });
}

/** Returns `"rtl"` or `"ltr"`: the direction of the first letter of tokens, ignoring special ones. */
export function direction(tokens) {
  for (const token of tokens) {
    const letter = isSpecial(token) || BYTES.test(token) ? null : LETTER.exec(token);
    if (letter) return RIGHT_TO_LEFT.test(letter[0]) ? "rtl" : "ltr";
  }
  return "ltr";
}

/** Returns a share in percent. */
export function percent(share) {
  if (share === null || Number.isNaN(share)) return "–";
  const hundredths = 100 * share;
  if (hundredths > 0 && hundredths < 0.095) return "<0.1 %";
  return `${hundredths.toFixed(hundredths >= 9.95 || hundredths === 0 ? 0 : 1)} %`;
}

/** Returns a probability in percent, or as its logarithm if that would be too small. */
export function probability(logProb) {
  const share = Math.exp(logProb ?? NaN);
  return share < LEAST_SHARE && logProb > LEAST_LOG ? logOf(logProb) : percent(share);
}

/** Returns probabilities for comparison: all with their logarithms if one is too small for percent. */
export function probabilities(logProbs) {
  const alone = logProbs.map(probability);
  if (!alone.some(isLog)) return alone;
  return alone.map((text, index) =>
    isLog(text) || logProbs[index] === null ? text : `${text}, ${logOf(logProbs[index])}`,
  );
}

/** Returns whether a probability is written as its logarithm. */
export function isLog(text) {
  return text.startsWith("log");
}

function logOf(logProb) {
  return `log ${Math.min(0, logProb).toFixed(1).replace("-0.0", "0.0").replace("-", "−")}`;
}
