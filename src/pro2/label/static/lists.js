// The two views of many items: a grid of one predicted class, and everything labelled.

import { newest } from "./api.js";
import { $, NONE, count, h, moreLike, percent, setText, thumbnail } from "./dom.js";

/** Items predicted to be of one class, found by a search, or most like one item: mark those that are not of the class,
 *  label the rest with one key. */
export class Grid {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.items = [];
    this.asked = {}; // what the items on screen answer; what is chosen may still be loading
    this.like = null; // the item that others are to be like
    this.marks = new Set(); // rows that are not of the class
    this.ask = newest("grid");
    this.setClasses(about.classes);
    $("grid-class").onchange = () => this.load();
    $("grid-order").onchange = () => this.load();
    $("grid-search").oninput = () => { this.like = null; this.load(); };
    $("grid-like").onclick = () => { this.like = null; this.load(); };
    $("confirm").onclick = () => this.confirm();
    $("mark-all").onclick = () => this.markAll();
    $("tiles").onchange = () => this.describe();
  }

  showLike(item, label) {
    this.like = item;
    $("grid-search").value = "";
    if (label) $("grid-class").value = label;
  }

  setClasses(classes) {
    const select = $("grid-class");
    if ([...select.options].map((option) => option.value).join("\0") === classes.join("\0")) return;
    const before = select.value;
    select.replaceChildren(...classes.map((name) => h("option", { value: name }, name)));
    if (classes.includes(before)) select.value = before;
  }

  async load() {
    const q = $("grid-search").value.trim(), like = this.like;
    const asked = { label: $("grid-class").value, q, like: like ? like.row : "" };
    this.showToolbar();
    const answer = await this.ask({ ...asked, order: $("grid-order").value });
    if (answer === null) return;
    // a grid that is loaded again keeps its marks
    if (JSON.stringify(asked) !== JSON.stringify(this.asked)) this.marks.clear();
    else if (this.items.length) this.marks = new Set(this.marked());
    this.asked = asked;
    this.items = this.outbox.unanswered(answer.items);
    setText($("grid-note"), answer.problem ?? this.note(answer.total, like));
    $("tiles").replaceChildren(...this.items.map((item) => h("li", {}, this.tile(item))));
    this.describe();
  }

  /** Whether the person chose the items: not by the prediction, so they tell nothing about its accuracy. */
  get selected() { return this.asked.q !== "" || this.asked.like !== ""; }

  showToolbar() {
    const looking = this.like !== null || $("grid-search").value.trim() !== "";
    setText($("grid-means"), looking ? "Label them as" : "Items predicted to be");
    $("grid-sorted").hidden = this.like !== null;
    $("grid-like").hidden = this.like === null;
    if (this.like) $("grid-like").replaceChildren(h("span", {}, `Like ${this.like.name}`), h("span", {}, "✕"));
    $("grid-like").ariaLabel = `Stop showing items like ${this.like?.name}`;
  }

  note(total, like) {
    const { label } = this.asked;
    if (!this.items.length) return this.selected ? "Nothing found." : `No unlabelled item is predicted to be ${label}.`;
    const not = `Mark the ones that are not ${label}.`;
    if (like) return `${count(this.items.length, "item")}, the most alike first. ${not}`;
    if (this.selected) return `${count(total, "unlabelled item")} found. ${not}`;
    return `${count(total, "unlabelled item")} predicted to be ${label}. Mark the ones that are not.`;
  }

  tile(item) {
    const { label } = this.asked, checked = this.marks.has(item.row);
    const box = h("input", { type: "checkbox", value: item.row, checked, "aria-label": `${item.name}: not ${label}` });
    const wrong = h("span", { className: "wrong", "aria-hidden": "true" }, `not ${label}`);
    const sure = item.probability === null ? "" : percent(item.probability);
    const unlike = item.unlike ? " · unlike" : "";
    const guess = (this.selected && item.guess ? `${item.guess} ${sure}` : sure) + unlike;
    const probability = guess ? h("span", { className: "sure" }, guess) : null;
    const short = (text) => h("span", { className: "short" }, text);
    const text = item.text ?? (item.columns.map(([, value]) => value).join(", ") || item.name);
    const content = item.image ? thumbnail(item, "", short("This image cannot be shown")) : short(text.slice(0, 400));
    return h("label", { className: "tile" }, box, content, probability, wrong);
  }

  boxes() { return [...$("tiles").querySelectorAll("input")]; }

  marked() { return this.boxes().filter((box) => box.checked).map((box) => Number(box.value)); }

  describe() {
    const wrong = this.marked().length;
    const right = this.items.length - wrong;
    $("confirm-bar").hidden = !this.items.length;
    const none = this.selected ? "None to label" : "Label one by one";
    $("confirm-text").textContent = right ? `Confirm ${right} as ${this.asked.label}` : none;
    const one = wrong === 1, comes = one ? "it comes next" : "they come next, one by one";
    const what = this.selected ? `${one ? "it stays" : "they stay"} without a label` : comes;
    $("mark-all").firstElementChild.textContent = right ? "Mark all" : "Mark none";
    $("confirm-note").textContent = wrong ? `${wrong} marked: ${what}.` : "None marked.";
  }

  markAll() {
    const boxes = this.boxes(), checked = boxes.some((box) => !box.checked);
    for (const box of boxes) box.checked = checked;
    this.describe();
  }

  confirm() {
    if (!this.items.length) return;
    const marked = this.marked(), selected = this.selected;
    const rows = this.items.map((item) => item.row).filter((row) => !marked.includes(row));
    if (selected && !rows.length) return;
    this.outbox.put({ kind: "label", label: this.asked.label, rows, wrong: selected ? [] : marked, selected });
    this.marks = new Set(selected ? marked : []); // what was found again is still not of the class
    this.items = [];
    $("tiles").replaceChildren();
    this.describe();
  }

  /** An empty grid fills when there is a model that predicts its class. */
  onFigures() { if (!this.items.length) this.load(); }

  saved(action) {
    // with marked items the other view comes first; this one loads when it is shown again
    if (action.wrong?.length === 0 || action.kind === "undo") this.load();
  }

  key(key) {
    const focused = this.items.find((item) => String(item.row) === document.activeElement.value);
    if (key === "Enter") this.confirm();
    else if (key.startsWith("Arrow")) this.move(key);
    else if (key === "a") this.markAll();
    else if (key === "/") $("grid-search").focus();
    else if (key === "m" && focused) moreLike(focused, this.asked.label);
    else return false;
    return true;
  }

  move(key) {
    const boxes = this.boxes();
    if (!boxes.length) return;
    const at = boxes.indexOf(document.activeElement);
    const top = boxes[0].getBoundingClientRect().top;
    const across = boxes.filter((box) => box.getBoundingClientRect().top === top).length;
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: across, ArrowUp: -across }[key];
    boxes[at < 0 ? 0 : Math.min(boxes.length - 1, Math.max(0, at + step))].focus();
  }
}

/** Everything labelled: what is in doubt first, one click to correct. */
export class LabelledList {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.classes = about.classes;
    this.ask = newest("labelled");
    $("search").oninput = () => this.load();
    $("more").onclick = () => this.load(this.items.length);
  }

  setClasses(classes) { this.classes = classes; }

  async load(offset = 0) {
    const query = $("search").value, answer = await this.ask({ q: query, offset });
    if (answer === null) return;
    this.items = offset ? [...this.items, ...answer.items] : answer.items;
    if (!offset) this.passed = { "None of these": answer.none, Skipped: answer.skipped };
    const searched = query.trim() !== "";
    $("list-note").textContent = answer.total
      ? `${count(answer.total, "label")}${searched ? " found" : ""}, ${answer.doubtful} in doubt`
      : searched ? "Nothing found." : "Nothing is labelled yet.";
    $("lists").replaceChildren(
      ...this.list("Disagreements", this.items.filter((item) => item.conflict)),
      ...this.list("In doubt", this.items.filter((item) => item.doubt > 0 && !item.conflict)),
      ...this.list("Agreed", this.items.filter((item) => item.doubt === 0)),
      ...Object.entries(this.passed).flatMap(([title, items]) => this.list(title, items)),
    );
    $("more").hidden = this.items.length >= answer.total;
  }

  list(title, items) {
    if (!items.length) return [];
    const entries = h("ul", {}, ...items.map((item) => this.entry(item)));
    return [h("section", { className: "list", "aria-label": title }, h("h3", {}, title), entries)];
  }

  entry(item) {
    const broken = h("span", { className: "thumb none" }, "cannot be shown");
    const face = item.image ? thumbnail(item, "thumb", broken) : null;
    const text = (item.text ?? item.name).slice(0, 400);
    const history = h("p", { className: "note" }, this.history(item));
    const note = item.note ? h("p", { className: "note" }, `Note: ${item.note}`) : null;
    const what = h("div", { className: "what" }, h("p", {}, text), history, note);
    const controls = h("div", { className: "act" }, ...this.controls(item));
    return h("li", { className: "entry", data: { row: item.row } }, face, what, controls);
  }

  history(item) {
    if (item.label === undefined) return "";
    const people = Object.entries(item.annotations);
    if (item.conflict) return people.map(([name, label]) => `${name}: ${label || NONE}`).join(", ");
    const by = people.length && people[0][0] ? ` by ${people.map(([name]) => name).join(" and ")}` : "";
    if (item.doubt === 0) return `Labelled ${item.label}${by}`;
    // a small doubt comes from a model without this label, whose probability is not kept
    const probability = item.doubt > 0.02 ? ` (${percent(item.doubt)})` : "";
    return `Labelled ${item.label}${by}. Prediction: ${item.alternative}${probability}.`;
  }

  controls(item) {
    const { conflict, doubt } = item;
    const others = conflict ? [...new Set(Object.values(item.annotations))] : doubt > 0 ? [item.alternative] : [];
    const buttons = others.map((name) => {
      const text = conflict ? `It is ${name || NONE}` : `Change to ${name}`;
      return h("button", { type: "button", onclick: () => this.adjudicate(item, name) }, text);
    });
    const options = this.classes.map((name) => h("option", { value: name, selected: name === item.label }, name));
    if (item.label === undefined) options.unshift(h("option", { value: " ", selected: true }, "label it …"));
    options.push(h("option", { value: "" }, NONE));
    const onchange = (event) => this.adjudicate(item, event.target.value);
    const onclick = () => moreLike(item, item.label);
    const like = h("button", { type: "button", className: "like", onclick }, "More like this");
    return [...buttons, like, h("select", { "aria-label": `Label of ${item.name}`, onchange }, ...options)];
  }

  adjudicate(item, label) {
    this.outbox.put({ kind: "adjudicate", rows: [item.row], label });
  }

  saved(action) {
    if (action.kind === "adjudicate" || action.kind === "undo") this.load();
  }

  key(key) {
    if (key !== "/") return false;
    $("search").focus();
    return true;
  }
}
