// Describes the highlighted weights in a sentence.

import { make } from "./dom.js";
import { largestOf, weightsOf } from "./data.js";
import { percent, plain } from "./words.js";

const MOST_NAMED = 3;
const LEAST_NAMED = 0.1; // smaller weights are omitted, except the largest

/** Returns a sentence of what a token attended to, or was attended to by, as nodes: “*Mann* attended 71 % to *man*”. */
export function captionOf(picture, tokens, side, index) {
  const weights = weightsOf(picture, side, index);
  const largest = largestOf(weights, MOST_NAMED).filter((place, rank) => rank === 0 || weights[place] >= LEAST_NAMED);
  const subject = word(tokens[side][index]);
  if (!largest.length) return [subject, side === "rows" ? " attended to nothing" : " was attended to by nothing"];
  const other = tokens[side === "rows" ? "columns" : "rows"];
  const parts = largest.map((place) => {
    const number = make("b", {}, percent(weights[place]));
    return side === "rows" ? [number, " to ", word(other[place])] : [word(other[place]), " (", number, ")"];
  });
  const listed = parts.flatMap((part, place) => [
    place === 0 ? "" : place === parts.length - 1 ? " and " : ", ",
    ...part,
  ]);
  return [subject, side === "rows" ? " attended " : " was attended to by ", ...listed];
}

function word(token) {
  return make("em", {}, make("bdi", {}, plain(token)));
}
