// Derives the role of a head from its weights.
//
// The share of a role is the mean weight of the role's columns over all rows. A head has the role with the largest
// share, if that is at least a half and at least twice the share under uniform attention. If no role qualifies, and
// rows spread over at least half of their unmasked columns (measured by 1 / Σ weight²), the head is “spread”. Rows with
// fewer than three unmasked columns are ignored.

import { isSpecial } from "./words.js";

const [LEAST_SHARE_OF_ROLE, LEAST_FACTOR, LEAST_SPREAD, FEWEST_COLUMNS] = [0.5, 2, 0.5, 3];
const PUNCTUATION = /^▁?\p{P}+$/u;

/** The meanings of the roles. */
export const ROLES = {
  same: "each token attends to itself",
  previous: "each token attends to the one before it",
  next: "each token attends to the one after it",
  "in order": "each token attends to the same part of the text, within one token",
  first: "most weight goes to the first token",
  separator: "most weight goes to punctuation and tokens such as </s>",
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
  // The row of a generated token is the step that generated it: its own column is the previous token.
  if (kind === "decoder") return { ...always, previous: offset(0) };
  return { ...always, same: offset(0), previous: offset(-1), next: offset(1) };
}

/** Returns the `name` of a head's role and its `share`, or `null` if no role qualifies. */
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
    const unmasked = kind === "decoder" ? Math.min(row + 1, columns) : columns;
    if (unmasked < FEWEST_COLUMNS) continue;
    counted += 1;
    for (const role of roles) {
      for (const column of role.of(row)) {
        if (column < 0 || column >= unmasked) continue;
        role.share += values[row * columns + column];
        role.even += 1 / unmasked;
      }
    }
    let squares = 0;
    for (let column = 0; column < unmasked; column++) squares += values[row * columns + column] ** 2;
    if (squares > 0) spread += 1 / squares / unmasked;
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
