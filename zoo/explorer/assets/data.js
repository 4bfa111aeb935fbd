// Access to views (see zoo/explorer/view.py) and their weights.

const ONE = 65535;
const decoded = new WeakMap(); // an array of decoded layers for each attention

export const KIND_NAMES = {
  encoder: "within the text that was read (encoder)",
  cross: "from the answer to the text (cross)",
  decoder: "within what was written (decoder)",
};

/** Returns the attention of a view and one of its answers by kind, the most useful kind first. */
export function attentions(view, answer) {
  const all = { ...answer?.attention, ...view.attention };
  return Object.fromEntries(
    ["cross", "encoder", "decoder"].filter((kind) => all[kind]).map((kind) => [kind, all[kind]]),
  );
}

/** Returns the tokens that attend and those that are attended to. */
export function sides(view, answer, kind) {
  if (kind === "encoder") return { rows: view.tokens, columns: view.tokens };
  return { rows: answer.tokens, columns: kind === "cross" ? view.tokens : answer.before };
}

/** Returns the weights of a layer, unsigned 16-bit integers [heads × rows × columns]; `null` if it is not loaded. */
function layerWeights(attention, layer) {
  const text = attention.layers[layer];
  if (text === null || text === undefined) return null;
  if (!decoded.has(attention)) decoded.set(attention, []);
  const layers = decoded.get(attention);
  layers[layer] ??= decodeWeights(text, attention.heads * attention.rows * attention.columns);
  return layers[layer];
}

function decodeWeights(text, size) {
  const bytes = Uint8Array.fromBase64 ? Uint8Array.fromBase64(text) : bytesOf(atob(text));
  if (bytes.length !== 2 * size)
    throw new Error(`The view is damaged: ${bytes.length} bytes of weights, not ${2 * size}.`);
  const weights = new Uint16Array(size);
  for (let i = 0; i < size; i++) weights[i] = bytes[2 * i] | (bytes[2 * i + 1] << 8);
  return weights;
}

function bytesOf(binary) {
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes;
}

/** Returns `{rows, columns, values, largest}` of a head or the `"mean"` of all; `null` if the layer is not loaded. */
export function picture(attention, layer, head) {
  const weights = layerWeights(attention, layer);
  if (weights === null) return null;
  const { heads, rows, columns } = attention;
  const size = rows * columns;
  const values = new Float32Array(size);
  const chosen = head === "mean" ? [...Array(heads).keys()] : [head];
  const share = 1 / (ONE * chosen.length);
  let largest = 0;
  for (const number of chosen) {
    const offset = number * size;
    for (let i = 0; i < size; i++) values[i] += weights[offset + i] * share;
  }
  for (let i = 0; i < size; i++) if (values[i] > largest) largest = values[i];
  return { rows, columns, values, largest };
}

/** Returns the weights of one token: of a row of a picture, or of a column. */
export function weightsOf(shownPicture, side, index) {
  const { rows, columns, values } = shownPicture;
  if (side === "rows") return values.subarray(index * columns, (index + 1) * columns);
  return Float32Array.from({ length: rows }, (_, row) => values[row * columns + index]);
}

/** Returns the indices of the largest weights above 0, at most `count`, largest first. */
export function largestOf(weights, count) {
  const indices = [...weights.keys()].filter((index) => weights[index] > 0);
  return indices.sort((a, b) => weights[b] - weights[a]).slice(0, count);
}

/** Adds weights that were loaded later to a view. */
export function addLayer(view, answer, layer, parts) {
  const all = attentions(view, answer);
  for (const [kind, text] of Object.entries(parts))
    if (all[kind] && layer < all[kind].layers.length) all[kind].layers[layer] = text;
}
