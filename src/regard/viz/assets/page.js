// --- state: a head, the tokens that look, the tokens looked at, and how it is shown -------------------
let { layer, head } = data, from = data.word, to = data.target;
let hovered = null, order = "place", zoom = 1, view = { top: 0, left: 0, count: size };
const shares = () => tokens.map((_, j) => look(layer, head, from, [j]).weight);
const strongestWords = () => words.map(word => ({ word, ...look(layer, head, from, word) })).sort((a, b) => b.weight - a.weight);
const aim = () => to.length ? to : strongestWords()[0].word;

// --- showing -------------------------------------------------------------------------------------------
function showChips() {
  const row = shares();
  chips.forEach((chip, j) => {
    const color = colour(Math.sqrt(row[j]));
    chip.style.background = css(color);
    chip.style.color = inkOn(color);
    chip.setAttribute("aria-pressed", from.includes(j));
    chip.classList.toggle("target", to.includes(j));
    chip.tabIndex = j === from[0] ? 0 : -1;
    chip.title = `${labelOf(from)} \u2192 ${labelOf([j])}  ${shown(look(layer, head, from, [j]))}`;
  });
  drawArcs(row, from);
}

function showLooks() {
  byId("from").textContent = `${labelOf(from)} looks to`;
  byId("looks").replaceChildren(...strongestWords().slice(0, 10).map(found => {
    const item = element("li"), row = element("button", { type: "button" }, item);
    row.setAttribute("aria-pressed", String(found.word) === String(to));
    row.onclick = () => { to = found.word; hovered = null; show(); };
    element("b", { textContent: labelOf(found.word) }, row);
    element("i", {}, row).style.width = 100 * found.weight + "%";
    element("span", { textContent: shown(found) }, row);
    return item;
  }));
}

function showMap() {
  const [rows, columns] = hovered || [from, to];
  drawMap(view, rows, columns);
  const [i, j] = hovered || [from, aim()];
  byId("readout").textContent = `${labelOf(i)} \u2192 ${labelOf(j)}   ${shown(look(layer, head, i, j))}`;
}

// Keep the marks in the window: it moves only if they would leave it.
function follow() {
  const count = Math.ceil(size / zoom), last = size - count;
  const placed = (first, at) => first <= at && at < first + count && first <= last
    ? first : Math.max(0, Math.min(last, at - Math.floor(count / 2)));
  const same = count === view.count;
  view = { count, top: placed(same ? view.top : size, from[0]), left: placed(same ? view.left : size, aim()[0]) };
  byId("window").textContent = zoom > 1 ? `${count} of ${size} tokens` : `all ${size} tokens`;
  byId("out").disabled = zoom === 1;
  byId("in").disabled = size / zoom < 32;
}

// The value that the overview is ordered by, how to print it, and what to say above.
const ORDERS = {
  place: { say: () => "One row per layer, one column per head; both are counted from 0." },
  look: {
    value: cell => -look(cell.layer, cell.head, from, to).most,
    print: cell => shown(look(cell.layer, cell.head, from, to)),
    say: () => `layer \u00b7 head, and how much ${labelOf(from)} looks to ${labelOf(to)}`,
  },
  focus: {
    value: cell => breadth(cell.layer, cell.head, from),
    print: cell => breadth(cell.layer, cell.head, from).toFixed(1),
    say: () => `layer \u00b7 head, and the number of tokens that ${labelOf(from)} looks to `
      + "(of those that get even shares: 2 to the entropy)",
  },
};
function showOrder() {
  const option = byId("order").querySelector("[value=look]");
  option.textContent = to.length ? `${labelOf(from)} \u2192 ${labelOf(to)}, strongest first` : "by target (choose one first)";
  option.disabled = !to.length;
  if (order === "look" && !to.length) order = "place";
  byId("order").value = order;
  const chosen = ORDERS[order], inPlace = !chosen.value;
  byId("ordered").textContent = chosen.say();
  const values = new Map(cells.map(cell => [cell, inPlace ? 0 : chosen.value(cell)]));
  ordered = [...cells].sort((a, b) => values.get(a) - values.get(b));   // stable: equals stay in place
  for (const cell of cells) {
    cell.caption.textContent = inPlace ? "" : `${cell.layer} \u00b7 ${cell.head}\n${chosen.print(cell)}`;
    cell.caption.hidden = inPlace;
  }
  const wanted = inPlace ? gridInPlace : ordered;
  const moved = wanted.some((node, k) => node !== grid.children[k]) || wanted.length !== grid.children.length;
  if (moved) {
    const focus = document.activeElement;
    grid.replaceChildren(...wanted);
    if (grid.contains(focus)) focus.focus();
  }
  grid.classList.toggle("sorted", !inPlace);
  grid.style.gridTemplateColumns = inPlace
    ? `20px repeat(${heads}, minmax(0, 1fr))` : "repeat(auto-fill, minmax(56px, 1fr))";
}

function show() {
  byId("head").textContent = `Layer ${layer}, head ${head}`;
  byId("question").textContent = `${labelOf(from)} \u2192 ${labelOf(aim())}  ${shown(look(layer, head, from, aim()))}`
    + `  in layer ${layer}, head ${head}`;
  map.setAttribute("aria-label", `attention weights of layer ${layer}, head ${head}`);
  showOrder();
  for (const cell of cells) {
    const chosen = cell.layer === layer && cell.head === head;
    cell.setAttribute("aria-pressed", chosen);
    cell.tabIndex = chosen ? 0 : -1;
  }
  const box = byId("scroll"), at = chips[from[0]].offsetTop;
  if (at < box.scrollTop || at > box.scrollTop + box.clientHeight - 40) box.scrollTop = at - 100;
  paint(picture, layer, head, size);
  follow(); showChips(); showLooks(); showMap();
}

function restyle() {
  makeRamp();
  byId("ramp").style.background = `linear-gradient(90deg, ${ramp.filter((_, k) => k % 15 === 0).map(css)})`;
  for (const cell of cells) paint(cell.firstChild, cell.layer, cell.head, Math.min(size, 64));
  show();
}

// --- building --------------------------------------------------------------------------------------------
byId("title").textContent = data.title;
byId("text").textContent = data.text;
byId("source").textContent = [data.source, `${size} tokens, ${layers} layers of ${heads} heads`].filter(Boolean).join("; ");
byId("kept").textContent = kept === size ? "" : `To stay small, this page holds the ${kept} largest weights of each row. `
  + "The others are drawn with their mean and read \u2264, the most that they can be.";
byId("sentence").classList.toggle("long", size > 90);
byId("zoom").hidden = size < 32;

const chips = [];
words.forEach(word => {
  const box = element("span", { className: "word" }, byId("chips"));
  for (const at of word) {
    const chip = element("button", { type: "button", className: "chip", textContent: tokens[at] }, box);
    chip.onclick = () => { from = word; hovered = null; show(); };
    chip.onpointerenter = () => { hovered = [from, [at]]; showMap(); };
    chips.push(chip);
  }
});
byId("chips").onpointerleave = () => { hovered = null; showMap(); };

const grid = byId("grid"), cells = [], gridInPlace = [element("span")];
let ordered = cells;
for (let h = 0; h < heads; h++) gridInPlace.push(element("span", { textContent: h }));
for (let l = 0; l < layers; l++) {
  gridInPlace.push(element("span", { textContent: l }));
  for (let h = 0; h < heads; h++) {
    const cell = element("button", { type: "button", title: `layer ${l}, head ${h}` });
    element("canvas", {}, cell);
    Object.assign(cell, { layer: l, head: h, caption: element("span", {}, cell) });
    cell.caption.style.whiteSpace = "pre-line";
    cell.onclick = () => { layer = l; head = h; hovered = null; show(); };
    cell.setAttribute("aria-label", cell.title);
    cells.push(cell);
    gridInPlace.push(cell);
  }
}
for (const weight of size > 128 ? [0, 0.001, 0.01, 0.05, 0.2, 0.5, 1] : [0, 0.01, 0.05, 0.1, 0.25, 0.5, 1]) {
  element("span", { textContent: weight }, byId("ticks")).style.left = 100 * spread(Math.sqrt(weight)) + "%";
}

// --- events ------------------------------------------------------------------------------------------------
const STEPS = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
const within = (value, count) => Math.max(0, Math.min(count - 1, value));
function onArrow(box, act) {
  box.addEventListener("keydown", event => {
    const step = STEPS[event.key];
    if (!step || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    hovered = null;
    act(...step);
  });
}
onArrow(byId("chips"), (down, right) => {
  const step = down || right;
  from = words[within(wordOf[step > 0 ? from[from.length - 1] : from[0]] + step, words.length)];
  show();
  chips[from[0]].focus();
});
onArrow(grid, (down, right) => {
  const columns = order === "place" ? heads : getComputedStyle(grid).gridTemplateColumns.split(" ").length;
  const at = ordered.findIndex(cell => cell.layer === layer && cell.head === head), next = at + down * columns + right;
  const cell = ordered[right && Math.floor(next / columns) !== Math.floor(at / columns) ? at : next] || ordered[at];
  ({ layer, head } = cell);
  show();
  cell.focus();
});
onArrow(map, (down, right) => {
  const [i, j] = [from[0], aim()[0]];
  from = [within(i + down, size)];
  to = [within(j + right, size)];
  show();
});

map.onpointermove = event => {
  const under = cellUnder(event);
  hovered = under && [[under[0]], [under[1]]];
  showMap();
};
map.onpointerleave = () => { hovered = null; showMap(); };
map.onclick = event => {
  const under = cellUnder(event);
  if (under) { from = [under[0]]; to = [under[1]]; show(); }
};
byId("in").onclick = () => { zoom *= 2; follow(); showMap(); };
byId("out").onclick = () => { zoom /= 2; follow(); showMap(); };
byId("order").onchange = event => { order = event.target.value; show(); grid.scrollTop = 0; };

const box = byId("search");
let place = -1;   // which of the found runs Enter went to last
box.oninput = () => {
  const found = search(box.value), inside = new Set(found.flat());
  byId("chips").classList.toggle("searching", box.value.trim() !== "");
  chips.forEach((chip, j) => chip.classList.toggle("found", inside.has(j)));
  byId("found").textContent = box.value.trim() ? (found.length ? `${found.length} found` : "not found") : "";
  place = -1;
  if (found.length) byId("scroll").scrollTop = Math.max(0, chips[found[0][0]].offsetTop - 100);
};
box.onkeydown = event => {
  const found = search(box.value);
  if (event.key !== "Enter" || !found.length) return;
  place = event.shiftKey ? (place > 0 ? place : found.length) - 1 : (place + 1) % found.length;
  from = found[place];
  hovered = null;
  byId("found").textContent = `${place + 1} of ${found.length}`;
  show();
};
addEventListener("keydown", event => {
  if (event.key === "Escape" && event.target !== box) { to = []; hovered = null; show(); }
  if (event.key === "/" && event.target !== box) { event.preventDefault(); box.focus(); }
});
dark.onchange = restyle;
addEventListener("resize", () => { drawArcs(shares(), from); showMap(); });
restyle();
