// The figures beside the item.

import { $, count, h, percent, s, say } from "./dom.js";

const WIDE = 300, HIGH = 100; // of the drawing; it is stretched to its place
const ENOUGH = 8; // random items before a point of the curve means anything

export function showFigures(figures) {
  document.body.dataset.ready = "";
  // how many labels the figures stand for, for whoever watches the page from outside
  document.body.dataset.learned = figures.learned;
  say($("advice"), figures.advice.text);
  $("advice").dataset.mood = figures.advice.mood;
  accuracy(figures.accuracy);
  chart(figures.history);
  say($("gain"), gain(figures));
  shares(figures.shares);
  agreement(figures.agreement);
  say($("basis"), figures.basis);
  say($("n-labelled"), figures.labels ? figures.labels.toLocaleString("en") : "");
}

function accuracy(now) {
  $("accuracy").classList.toggle("none", now === null);
  say($("accuracy"), now ? percent(now.value) : "Not measured yet");
  $("interval").hidden = now === null;
  say($("range"), now ? `${percent(now.low)} to ${percent(now.high)}, 19 times in 20` : "");
  if (now === null) return;
  const [band, mark] = $("interval").children;
  band.style.left = `${100 * now.low}%`;
  band.style.width = `${100 * (now.high - now.low)}%`;
  mark.style.left = `${100 * now.value}%`;
}

function chart(all) {
  const place = $("chart");
  const history = all.filter((at) => at.n >= ENOUGH);
  place.closest("details").hidden = history.length < 2;
  if (history.length < 2) return;
  const last = history.at(-1), first = history[0];
  const x = (n) => (WIDE * (n - first.labels)) / (last.labels - first.labels);
  const y = (share) => HIGH * (1 - share);
  const points = (value) => history.map((at) => `${x(at.labels).toFixed(1)},${y(at[value]).toFixed(1)}`);
  const drawing = s("svg", { viewBox: `0 0 ${WIDE} ${HIGH}`, preserveAspectRatio: "none", "aria-hidden": "true" });
  for (const share of [0, 0.5, 1]) drawing.append(s("line", { class: "rule", x1: 0, x2: WIDE, y1: y(share), y2: y(share), "vector-effect": "non-scaling-stroke" }));
  drawing.append(s("polygon", { class: "band", points: [...points("low"), ...points("high").reverse()].join(" ") }));
  drawing.append(s("polyline", { class: "line", points: points("value").join(" "), "vector-effect": "non-scaling-stroke" }));
  const ticks = [0, 0.5, 1].map((share) => tick(share));
  const ends = h("div", { className: "ends" }, h("span", {}, count(first.labels, "label")), h("span", {}, count(last.labels, "label")));
  place.replaceChildren(drawing, ...ticks, ends);
  place.setAttribute("aria-label", `Accuracy from ${percent(first.value)} at ${count(first.labels, "label")} to ${percent(last.value)} at ${last.labels}`);
}

function tick(share) {
  const label = h("span", { className: "tick", "aria-hidden": "true" }, percent(share));
  label.style.top = `${6.5 * (1 - share)}rem`;
  return label;
}

function gain(figures) {
  if (figures.gain === null) return "";
  const points = (share) => Math.round(100 * share);
  const { points: middle, low, high } = figures.gain;
  if (points(high) === 0) return "Ten more labels: no change to be expected.";
  const about = middle < 0.005 ? "less than a point" : points(middle) === 1 ? "about a point" : `about ${points(middle)} points`;
  return `Ten more labels: ${about} more (${points(low)} to ${points(high)}).`;
}

function shares(classes) {
  const sorted = [...classes].sort((a, b) => b.share - a.share);
  const largest = Math.max(sorted[0]?.share ?? 0, 0.01);
  const guessed = sorted[0]?.share > 0; // before the first model there is nothing to expect
  $("shares").replaceChildren(...sorted.map((each) => {
    const bar = h("i");
    bar.style.width = `${(100 * each.share) / largest}%`;
    const value = (guessed ? `${percent(each.share)} · ` : "") + count(each.labels, "label");
    return h("li", {}, h("span", { className: "name" }, each.name), h("span", { className: "value" }, value), h("span", { className: "track", "aria-hidden": "true" }, bar));
  }));
}

function agreement({ twice, disputed }) {
  $("agreement").hidden = twice === 0;
  if (twice) say($("agreement"), `${count(twice, "item")} labelled by two people; they disagree on ${disputed}.`);
}
