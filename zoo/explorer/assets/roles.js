// What a head does, told from its weights alone.
//
// The rule: of each role the mean weight that rows give to the columns of that role. The role with the largest is the
// head's, if that is at least a half and at least twice of what even attention would give. If no role is, and rows
// spread over at least half of what they may see (counted as 1 / Σ weight²), the head is “spread”. Rows that see fewer
// than three columns say nothing and are left out.

import { isSpecial } from "./words.js";

const [LEAST_SHARE_OF_ROLE, LEAST_FACTOR, LEAST_SPREAD, FEWEST_COLUMNS] = [0.5, 2, 0.5, 3];
const PUNCTUATION = /^▁?\p{P}+$/u;

/** What the names of roles mean. */
export const ROLES = {
  same: "each token looks at itself",
  previous: "each token looks at the one before it",
  next: "each token looks at the one after it",
  "in order": "each token looks at the same part of the text, within one token",
  first: "most looks go to the first token",
  separator: "most looks go to punctuation and tokens such as </s>",
  spread: "its weight is spread evenly over at least half of the tokens",
};

/** Returns the columns of each role, as a function of the row; `columns` are tokens. */
function columnsByRole(kind, rows, columns) {
  const separators = [...columns.keys()].filter(
    (index) => index > 0 && (isSpecial(columns[index]) || PUNCTUATION.test(columns[index])),
  );
  const offset = (distance) => (row) => [row + distance];
  const always = { first: () => [0], separator: () => separators };
  if (kind === "cross") {
    const slope = (columns.length - 1) / Math.max(1, rows.length - 1);
    const inOrder = (row) => [-1, 0, 1].map((distance) => Math.round(row * slope) + distance);
    return { ...always, "in order": inOrder };
  }
  // The row of a token that was written stands for the step that wrote it: its own column holds the token before it.
  if (kind === "decoder") return { ...always, previous: offset(0) };
  return { ...always, same: offset(0), previous: offset(-1), next: offset(1) };
}

/** Returns the `name` of what a head does and how clearly it does so, its `share`; or `null` if no rule fits. */
export function roleOf(picture, kind, tokens) {
  const { rows, columns, values } = picture;
  const roles = Object.entries(columnsByRole(kind, tokens.rows, tokens.columns)).map(([name, of]) => ({
    name,
    of,
    share: 0,
    even: 0,
  }));
  let [counted, spread] = [0, 0];
  for (let row = 0; row < rows; row++) {
    const seen = kind === "decoder" ? Math.min(row + 1, columns) : columns;
    if (seen < FEWEST_COLUMNS) continue;
    counted += 1;
    for (const role of roles) {
      for (const column of role.of(row)) {
        if (column < 0 || column >= seen) continue;
        role.share += values[row * columns + column];
        role.even += 1 / seen;
      }
    }
    let squares = 0;
    for (let column = 0; column < seen; column++) squares += values[row * columns + column] ** 2;
    if (squares > 0) spread += 1 / squares / seen;
  }
  if (!counted) return null;
  const fitting = roles.filter(
    ({ share, even }) => share >= LEAST_SHARE_OF_ROLE * counted && share >= LEAST_FACTOR * even,
  );
  if (fitting.length) {
    const { name, share } = fitting.reduce((best, role) => (role.share > best.share ? role : best));
    return { name, share: share / counted };
  }
  return spread >= LEAST_SPREAD * counted ? { name: "spread", share: spread / counted } : null;
}
