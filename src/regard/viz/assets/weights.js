"use strict";
// --- weights: the page holds their square roots, all of them or the largest of each row -----------
const byId = id => document.getElementById(id);
const data = JSON.parse(byId("data").textContent);
const { tokens, layers, heads, kept } = data, size = tokens.length, ROWS = layers * heads * size, TOP = 65535;

function numbers(base64) {
  const binary = atob(base64), bytes = new Uint8Array(binary.length);
  for (let k = 0; k < bytes.length; k++) bytes[k] = binary.charCodeAt(k);
  return new Uint16Array(bytes.buffer);
}

// The smallest root that each row lists; what is not listed lies below it and has the mean of the rest.
const cut = kept < size ? new Uint16Array(ROWS) : null;
const roots = cut ? filled(numbers(data.roots), numbers(data.places)) : numbers(data.roots);

function filled(listed, places) {
  const full = new Uint16Array(ROWS * size);
  for (let row = 0; row < ROWS; row++) {
    const first = row * (kept + 1), mean = listed[first + kept];
    cut[row] = listed.subarray(first, first + kept).reduce((least, root) => Math.min(least, root));
    full.fill(Math.min(mean, Math.max(0, cut[row] - 1)), row * size, (row + 1) * size);
    for (let k = 0; k < kept; k++) full[row * size + places[row * kept + k]] = listed[first + k];
  }
  return full;
}

const rowAt = (l, h, i) => (l * heads + h) * size + i;
const weightAt = (row, j) => (roots[row * size + j] / TOP) ** 2;
const mostAt = (row, j) => cut && roots[row * size + j] < cut[row] ? ((cut[row] + 0.5) / TOP) ** 2 : weightAt(row, j);

// What the tokens `to` get from the tokens `from`: rows are averaged, columns summed. `most` bounds the weight.
function look(l, h, from, to) {
  let weight = 0, most = 0;
  for (const i of from) for (const j of to) {
    weight += weightAt(rowAt(l, h, i), j) / from.length;
    most += mostAt(rowAt(l, h, i), j) / from.length;
  }
  return { weight, most };
}

function shown({ weight, most }) {
  if (most < 0.00095) return "< 0.001";
  if (most > weight) return `\u2264 ${(Math.ceil(most * 1000) / 1000).toFixed(3)}`;
  return weight >= 0.0995 ? weight.toFixed(2) : weight.toFixed(3);
}

// Over how many tokens a head spreads, if it spread evenly: 2 to the entropy of its averaged row.
function breadth(l, h, from) {
  let entropy = 0, sum = 0;
  for (let j = 0; j < size; j++) {
    const { weight } = look(l, h, from, [j]);
    if (weight > 0) entropy -= weight * Math.log2(weight);
    sum += weight;
  }
  return sum > 0 ? 2 ** (entropy / sum + Math.log2(sum)) : 0;
}
