// --- words: tokens that belong together, their names, and finding them ----------------------------
const words = [], wordOf = [];
tokens.forEach((token, at) => {
  if (!at || !token.startsWith("##")) words.push([]);
  words[words.length - 1].push(at);
  wordOf.push(words.length - 1);
});
const bare = at => at && tokens[at].startsWith("##") ? tokens[at].slice(2) : tokens[at];
const names = words.map(word => word.map(bare).join(""));

// As the command line has it: the#2 is the second "the" of the text.
const labels = (() => {
  const count = new Map(), seen = new Map();
  for (const name of names) count.set(name, (count.get(name) || 0) + 1);
  return names.map(name => {
    seen.set(name, (seen.get(name) || 0) + 1);
    return count.get(name) > 1 ? `${name}#${seen.get(name)}` : name;
  });
})();

function labelOf(places) {
  const parts = [];
  for (let k = 0; k < places.length;) {
    const number = wordOf[places[k]], word = words[number];
    const whole = word.every((at, n) => places[k + n] === at);
    parts.push(whole ? labels[number] : `${tokens[places[k]]} in ${labels[number]}`);
    k += whole ? word.length : 1;
  }
  return parts.join(" ");
}

// Case and accents do not count. A space stands between words, so that words in a row are found as well.
const fold = text => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
const apart = text => text.replace(/[\p{P}\p{S}]/gu, " $& ").trim().replace(/\s+/gu, " ");
const line = [], owner = [];
words.forEach((word, number) => {
  const text = (number ? " " : "") + fold(names[number]);
  line.push(text);
  for (let k = 0; k < text.length; k++) owner.push(number);
  if (number) owner[owner.length - text.length] = -1;
});
const joined = line.join("");

function matches(needle) {
  const found = [];
  for (let at = joined.indexOf(needle); needle && at >= 0; at = joined.indexOf(needle, at + needle.length)) {
    const numbers = [...new Set(owner.slice(at, at + needle.length))].filter(number => number >= 0);
    const places = numbers.flatMap(number => words[number]);
    if (String(found[found.length - 1]) !== String(places)) found.push(places);
  }
  return found;
}

// Runs of tokens whose words hold the text; "didn't" is three words of the model: didn, ', t.
function search(text) {
  const needle = fold(text.trim()), found = matches(needle);
  return found.length ? found : matches(apart(needle));
}
