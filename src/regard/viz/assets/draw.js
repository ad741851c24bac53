// --- colours: lightness runs one way in either theme; small weights are spread, more so in long texts
const spread = size > 128 ? Math.sqrt : root => root;
const dark = matchMedia("(prefers-color-scheme: dark)");
const STOPS = {
  light: [[255, 255, 255], [222, 236, 245], [166, 206, 227], [92, 163, 204], [34, 113, 178], [10, 66, 127], [6, 34, 78]],
  dark: [[21, 27, 35], [24, 54, 88], [24, 92, 128], [34, 134, 152], [78, 178, 158], [160, 216, 158], [244, 246, 190]],
};
let ramp, pixel;   // colours of 256 steps, evenly spaced as drawn; and of a root's upper 8 bits, as pixels
function makeRamp() {
  const stops = STOPS[dark.matches ? "dark" : "light"], last = stops.length - 1;
  ramp = Array.from({ length: 256 }, (_, k) => {
    const at = k / 255 * last, low = Math.min(Math.floor(at), last - 1), part = at - low;
    return stops[low].map((c, channel) => Math.round(c + (stops[low + 1][channel] - c) * part));
  });
  pixel = Uint32Array.from({ length: 256 }, (_, k) => {
    const [r, g, b] = colour(k / 255);
    return (255 << 24 | b << 16 | g << 8 | r) >>> 0;
  });
}
const colour = root => ramp[Math.round(spread(Math.min(1, root)) * 255)];
const css = color => `rgb(${color})`;
const inkOn = ([r, g, b]) => 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#101820" : "#f4f7fa";
const themed = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

function element(name, properties, parent) {
  const made = Object.assign(document.createElement(name), properties);
  if (parent) parent.append(made);
  return made;
}

// Paint a head on a canvas of side x side pixels; where several weights share a pixel the largest shows.
function paint(canvas, l, h, side) {
  canvas.width = canvas.height = side;
  const context = canvas.getContext("2d"), image = context.createImageData(side, side);
  const slot = Int32Array.from({ length: size }, (_, k) => Math.floor(k * side / size));
  const peaks = new Uint16Array(side * side), first = rowAt(l, h, 0) * size;
  for (let i = 0; i < size; i++) for (let j = 0, row = slot[i] * side; j < size; j++) {
    const root = roots[first + i * size + j], at = row + slot[j];
    if (root > peaks[at]) peaks[at] = root;
  }
  const pixels = new Uint32Array(image.data.buffer);
  for (let at = 0; at < pixels.length; at++) pixels[at] = pixel[Math.round(peaks[at] / 257)];
  context.putImageData(image, 0, 0);
}

// --- the map: a window of rows and columns of one head ----------------------------------------------
const map = byId("map"), picture = document.createElement("canvas");
let frame;   // where the cells are on the map: room of the labels, side of a cell, first row and column, how many

// Draw the window; rows and columns are those that the marks go around, each a run of tokens.
function drawMap({ top, left, count }, rows, columns) {
  const context = map.getContext("2d"), scale = devicePixelRatio || 1, wide = map.clientWidth;
  const label = token => token.length > 14 ? token.slice(0, 13) + "\u2026" : token;
  context.font = "12px system-ui, sans-serif";
  const room = 10 + Math.max(...tokens.map(token => context.measureText(label(token)).width));
  const cell = (wide - room - 3) / count;
  frame = { room, cell, top, left, count };
  map.width = map.height = wide * scale;
  map.style.height = wide + "px";
  context.scale(scale, scale);
  context.imageSmoothingEnabled = cell * scale < 1;
  context.drawImage(picture, left, top, count, count, room, room, cell * count, cell * count);
  if (cell >= 9) drawRules(context);

  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  drawLabels(rows, top, (k, color) => write(context, label(tokens[k]), room - 6, room + (k - top + 0.5) * cell, 0, color));
  drawLabels(columns, left, (k, color) => write(context, label(tokens[k]), room + (k - left + 0.5) * cell, room - 6, 1, color));

  context.strokeStyle = themed("--mark");
  context.lineWidth = 1.5;
  context.rect(room - 3, room - 3, cell * count + 6, cell * count + 6);
  context.clip();   // marks outside the window are not drawn over the labels
  const air = cell < 6 ? 2 : 0;   // thin rows are framed from outside, so that the frame hides nothing
  const y = room + (rows[0] - top) * cell, high = rows.length * cell;
  context.strokeRect(room, y - air, cell * count, high + 2 * air);
  if (columns.length) {
    context.strokeRect(room + (columns[0] - left) * cell - air, y - air, columns.length * cell + 2 * air, high + 2 * air);
  }
}

// The marked tokens, and as many others as have room.
function drawLabels(marked, first, draw) {
  const every = Math.ceil(13 / frame.cell);
  for (let k = first; k < first + frame.count; k++) {
    if (marked.includes(k) && (k - marked[0]) % every === 0) draw(k, themed("--mark"));
    else if ((k - first) % every === 0 && marked.every(m => Math.abs(m - k) >= every)) draw(k, themed("--soft"));
  }
}

function write(context, text, x, y, turned, color) {
  context.save();
  context.translate(x, y);
  if (turned) context.rotate(-Math.PI / 2);
  context.textAlign = turned ? "left" : "right";
  context.fillStyle = color;
  context.fillText(text, 0, 0);
  context.restore();
}

function drawRules(context) {
  const { room, cell, count } = frame;
  context.strokeStyle = themed("--card");
  context.lineWidth = 1;
  for (let k = 0; k <= count; k++) {
    context.strokeRect(room + k * cell, room, 0, cell * count);
    context.strokeRect(room, room + k * cell, cell * count, 0);
  }
}

function cellUnder(event) {
  const index = offset => Math.floor((offset - frame.room) / frame.cell);
  const i = index(event.offsetY), j = index(event.offsetX);
  return i >= 0 && j >= 0 && i < frame.count && j < frame.count ? [frame.top + i, frame.left + j] : null;
}

// --- arcs from the word that looks to the tokens that it looks at most --------------------------------
function drawArcs(shares, from) {
  const arcs = byId("arcs"), origin = arcs.getBoundingClientRect(), gap = size > 90 ? 14 : 26;
  const boxes = from.map(at => chips[at].getBoundingClientRect());
  const start = boxes[0], centre = (start.left + boxes[boxes.length - 1].right) / 2 - origin.x;
  arcs.style.height = byId("chips").offsetHeight + "px";
  arcs.replaceChildren();
  const strongest = shares.map((weight, j) => [weight, j]).sort((a, b) => b[0] - a[0]).slice(0, 12);
  for (const [weight, j] of strongest) {
    if (weight < 0.02 || from.includes(j)) continue;
    const to = chips[j].getBoundingClientRect(), x = to.x + to.width / 2 - origin.x;
    const below = to.y > start.y + 4, above = to.y < start.y - 4;
    const y0 = (below ? start.bottom : start.top) - origin.y, y1 = (above ? to.bottom : to.top) - origin.y;
    const rise = Math.min(gap * 1.7, 10 + Math.abs(x - centre) * 0.14);
    const bend = below ? [y0 + gap, y1 - gap] : above ? [y0 - gap, y1 + gap] : [y0 - rise, y1 - rise];
    const path = document.createElementNS(arcs.namespaceURI, "path");
    path.setAttribute("d", `M${centre} ${y0}C${centre} ${bend[0]} ${x} ${bend[1]} ${x} ${y1}`);
    path.setAttribute("stroke-width", 1 + 5 * weight);
    path.setAttribute("opacity", 0.25 + 0.7 * weight);
    arcs.append(path);
  }
}
