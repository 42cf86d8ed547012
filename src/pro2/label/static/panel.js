// The figures at the side.

import { $, count, h, percent, setText } from "./dom.js";

const WIDTH = 300, HEIGHT = 100; // of the drawing; it is stretched to its place
const ENOUGH = 8; // random items before a point of the curve means anything
const MANY = 20; // random items before a single number is worth more than its interval

export function showFigures(figures) {
  document.body.dataset.ready = "";
  document.body.dataset.learned = figures.learned; // labels behind the figures, for scripts that watch the page
  document.body.dataset.version = figures.version;
  setText($("advice"), figures.advice.text);
  $("advice").dataset.level = figures.advice.level;
  showAccuracy(figures.accuracy);
  showChart(figures.history.filter((point) => point.n >= ENOUGH));
  setText($("gain"), gain(figures.gain));
  showShares(figures.shares);
  showAgreement(figures.agreement);
  setText($("basis"), figures.basis);
  const pace = figures.per_minute === null ? "" : `, ${Math.round(figures.per_minute)} a minute`;
  setText($("progress"), `${figures.answered.toLocaleString("en")} of ${count(figures.items, "item")}${pace}`);
  setText($("n-labelled"), figures.labels ? figures.labels.toLocaleString("en") : "");
}

function showAgreement({ n, conflicts, undecided, kappa, low, high }) {
  $("agreement").hidden = n === 0;
  const text = `${count(n, "item")} labelled by several people, who disagree on ${conflicts}.`;
  const interval = `${low.toFixed(2)} to ${high.toFixed(2)}`;
  const beyond = ` Agreement beyond chance (Fleiss' kappa): ${kappa?.toFixed(2)}, 95% interval ${interval}.`;
  setText($("agreement-text"), text + (kappa === null ? "" : beyond));
  $("decide").hidden = undecided === 0;
  setText($("decide"), `Decide ${undecided}`);
}

function showAccuracy(now) {
  $("accuracy").classList.toggle("none", now === null);
  $("interval").hidden = now === null;
  if (now === null) {
    setText($("accuracy"), "Not measured yet");
    setText($("range"), "");
    return;
  }
  const interval = `${Math.round(100 * now.low)} to ${percent(now.high)}`;
  const isPoint = now.n >= MANY;
  setText($("accuracy"), isPoint ? percent(now.value) : interval);
  setText($("range"), isPoint ? `95% interval ${interval}` : `95% interval from ${count(now.n, "random item")}`);
  const [band, mark] = $("interval").children;
  band.style.left = percent(now.low);
  band.style.width = percent(now.high - now.low);
  mark.hidden = !isPoint;
  mark.style.left = percent(now.value);
}

function showChart(history) {
  const chart = $("chart");
  chart.closest("details").hidden = history.length < 2;
  if (history.length < 2) return;
  const last = history.at(-1), first = history[0];
  const x = (n) => ((WIDTH * (n - first.labels)) / (last.labels - first.labels)).toFixed(1);
  const y = (share) => (HEIGHT * (1 - share)).toFixed(1);
  const points = (value) => history.map((point) => `${x(point.labels)},${y(point[value])}`);
  const rules = [0, 0.5, 1].map((share) => `<line class="rule" x2="${WIDTH}" y1="${y(share)}" y2="${y(share)}"/>`);
  const [begin, end] = [first, last].map((point) => count(point.labels, "label"));
  // numbers only: nothing here could be markup
  chart.innerHTML = `
    <svg viewBox="0 0 ${WIDTH} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">${rules.join("")}
      <polygon class="band" points="${[...points("low"), ...points("high").reverse()].join(" ")}"/>
      <polyline class="line" points="${points("value").join(" ")}"/></svg>
    <div class="ticks" aria-hidden="true"><span>100%</span><span>50%</span><span>0%</span></div>
    <div class="ends"><span>${begin}</span><span>${end}</span></div>`;
  const summary = `Accuracy from ${percent(first.value)} at ${begin} to ${percent(last.value)} at ${end}`;
  chart.setAttribute("aria-label", summary);
}

function gain(expected) {
  if (expected === null) return "";
  const [points, low, high] = [expected.points, expected.low, expected.high].map((share) => Math.round(100 * share));
  if (high === 0) return "Ten more labels: no change expected.";
  const about = points === 0 ? "less than one point" : `about ${count(points, "point")}`;
  return `Ten more labels: ${about} (${low} to ${high}).`;
}

function showShares(classes) {
  const sorted = [...classes].sort((a, b) => b.share - a.share);
  const largest = Math.max(sorted[0]?.share ?? 0, 0.01);
  const predicted = sorted[0]?.share > 0; // without a model there is nothing to expect
  $("shares").replaceChildren(...sorted.map((each) => {
    const bar = h("i");
    bar.style.width = percent(each.share / largest);
    const value = (predicted ? `${percent(each.share)} · ` : "") + count(each.labels, "label");
    return h("li", {}, h("span", { className: "name" }, each.name), h("span", { className: "value" }, value),
      h("span", { className: "track", "aria-hidden": "true" }, bar));
  }));
}
