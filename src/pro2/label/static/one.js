// One item at a time. The next ones are loaded and decoded before they are needed.

import { ask } from "./api.js";
import { $, breakable, count, h, percent, picture, say } from "./dom.js";
import { MANY, keysOf } from "./keys.js";

const ENLARGE = 8; // times its own size, at most

export class OneByOne {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.hands = []; // items the server has handed out, the one on screen first
    this.pictures = new Map();
    this.shown = null;
    this.setClasses(about.classes);
    $("accept").onclick = () => this.accept();
    $("skip").onclick = () => this.skip();
    $("undo").onclick = () => this.undo();
    $("find-class").oninput = () => this.filter();
    $("find-class").onkeydown = (event) => this.findKey(event);
    this.take(about.hands);
  }

  setClasses(classes) {
    if (this.classes?.join("\0") === classes.join("\0")) return;
    this.classes = classes;
    const keys = keysOf(classes);
    this.byKey = new Map(classes.flatMap((name, i) => keys[i].map((key) => [key, name])));
    $("classes").replaceChildren(...classes.map((name, i) => h("li", {}, this.chip(name, keys[i]))));
    $("classes").classList.toggle("long-names", classes.some((name) => name.length > 16));
    $("find").hidden = classes.length <= 9;
    this.markGuess();
  }

  chip(name, keys) {
    const caps = h("span", { className: "keys-of", "aria-hidden": "true" }, ...keys.map((key) => h("kbd", {}, key)));
    const properties = { type: "button", data: { name }, onclick: () => this.label(name) };
    if (keys.length) properties["aria-keyshortcuts"] = keys.join(" ");
    return h("button", properties, caps, h("span", {}, ...breakable(name)));
  }

  /** The server's list of what this person holds; what has been answered here meanwhile is left out. */
  take(hands, first = false) {
    const answered = this.outbox.rows;
    const fresh = hands.filter((item) => !answered.has(item.row));
    const kept = this.shown !== null && !first ? fresh.findIndex((item) => item.row === this.shown.row) : -1;
    // the item on screen stays as it is, guess included: nothing changes under the finger
    if (kept >= 0) fresh.unshift({ ...fresh.splice(kept, 1)[0], ...this.shown });
    this.hands = fresh;
    this.prepare();
    if (kept < 0) this.show();
  }

  freshGuesses(guesses) {
    for (const item of this.hands) {
      const guess = guesses[item.row];
      if (guess && item !== this.hands[0]) [item.guess, item.sure] = guess;
    }
    if (this.shown && this.shown.guess === null && guesses[this.shown.row]) {
      [this.shown.guess, this.shown.sure] = guesses[this.shown.row];
      this.hands[0] = this.shown;
      this.markGuess();
    }
  }

  prepare() {
    const wanted = this.hands.slice(0, 4);
    for (const item of wanted) {
      if (!item.image || this.pictures.has(item.row)) continue;
      const image = picture(item.row, this.size(), `Item ${item.name}`, (reason) => this.broken(item.row, reason));
      // a tiny picture blown up to a whole screen shows nothing but its pixels
      image.onload = () => { [image.style.maxWidth, image.style.maxHeight] = [`${ENLARGE * image.naturalWidth}px`, `${ENLARGE * image.naturalHeight}px`]; };
      image.decode().catch(() => {}); // errors are told by onerror
      this.pictures.set(item.row, image);
    }
    for (const row of this.pictures.keys()) {
      if (!wanted.some((item) => item.row === row)) this.pictures.delete(row);
    }
  }

  size() {
    return Math.max($("stage").clientWidth, 640) * devicePixelRatio > 1400 ? 2560 : 1280;
  }

  broken(row, reason) {
    const note = h("p", { className: "empty" }, h("strong", {}, "This image cannot be shown"), reason);
    this.pictures.set(row, note);
    if (this.shown?.row === row) this.draw();
  }

  show() {
    this.shown = this.hands[0] ?? null;
    this.draw();
    this.markGuess();
    if (this.shown === null) this.refill();
  }

  draw() {
    const item = this.shown;
    if (item === null) {
      const note = this.outbox.length ? ["The next item is on its way."] : ["Every item is labelled or skipped.", "Done writes the results."];
      $("stage").replaceChildren(h("p", { className: "empty" }, h("strong", {}, note[0]), note[1]));
    } else if (item.image) {
      const facts = item.columns.map(([name, value]) => h("span", { className: "fact" }, `${name} ${value}`));
      const caption = h("figcaption", {}, h("span", { className: "name" }, item.name), ...facts);
      $("stage").replaceChildren(this.pictures.get(item.row), caption);
    } else {
      $("stage").replaceChildren(this.reading(item));
    }
  }

  reading(item) {
    const rows = item.columns.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
    const text = item.text === undefined ? null : h("p", { className: "text" }, item.text);
    const columns = rows.length ? h("dl", {}, ...rows) : null;
    const name = text || columns ? null : h("p", { className: "text" }, item.name);
    return h("div", { className: "reading", tabIndex: 0, role: "group", "aria-label": `Item ${item.name}` }, text, columns, name);
  }

  markGuess() {
    const item = this.shown;
    for (const button of $("classes").querySelectorAll("button")) {
      if (item && button.dataset.name === item.guess) button.dataset.guess = "";
      else delete button.dataset.guess;
      button.disabled = item === null;
    }
    for (const id of ["skip", "open-new"]) $(id).disabled = item === null;
    $("accept").disabled = !item?.guess;
    const line = $("guess");
    if (!item) line.replaceChildren();
    else if (!item.guess) say(line, "No guess yet: tell it what this is.");
    else line.replaceChildren("The model says ", h("b", {}, item.guess), h("span", { className: "sure" }, this.certainty(item)));
  }

  /** Before the first label nothing has checked the source model's own certainty here, so it is not repeated. */
  certainty(item) {
    return item.sure === null ? ", as it learned elsewhere" : `, ${percent(item.sure)} sure`;
  }

  answer(action) {
    if (this.shown === null) return;
    const row = this.shown.row;
    this.outbox.put({ ...action, rows: [row] });
    this.hands = this.hands.filter((item) => item.row !== row);
    this.clearFilter();
    this.show();
    if (document.activeElement?.closest("#view-one")) $("stage").focus({ preventScroll: true });
  }

  label(name) { this.answer({ kind: "label", label: name }); }
  skip() { this.answer({ kind: "skip" }); }
  accept() { if (this.shown?.guess) this.label(this.shown.guess); }
  undo() { this.outbox.put({ kind: "undo" }); }

  /** A class that did not exist, for the item on screen. */
  create(name) {
    this.outbox.put({ kind: "class", label: name });
    this.setClasses([...this.classes, name]);
    this.label(name);
  }

  saved(answer, action) {
    this.take(answer.hands, action.kind === "undo");
    if (answer.undone) this.tellUndone(answer.undone);
  }

  tellUndone(undone) {
    const what = undone.rows.length > 1 ? count(undone.rows.length, "label") : undone.label ?? "the skip";
    say($("saved"), `Undone: ${undone.kind === "class" ? `class ${undone.label}` : what}`);
  }

  async refill() {
    if (this.outbox.length) return; // the answer to what is on its way brings the next items
    const state = await ask("state").catch(() => null);
    if (state && this.shown === null && state.hands.length) this.take(state.hands);
  }

  key(key) {
    if (key === "Enter") this.accept();
    else if (key === "s") this.skip();
    else if (this.byKey.has(key)) this.label(this.byKey.get(key));
    else if (key === "/" || (this.classes.length > MANY && /^[a-z]$/.test(key))) this.startFind(key);
    else return false;
    return true;
  }

  startFind(key) {
    if ($("find").hidden) return;
    $("find-class").focus();
    $("find-class").value = key === "/" ? "" : key;
    this.filter();
  }

  matches() {
    const typed = $("find-class").value.trim().toLowerCase();
    const starts = this.classes.filter((name) => name.toLowerCase().startsWith(typed));
    const holds = this.classes.filter((name) => name.toLowerCase().includes(typed) && !starts.includes(name));
    return [...starts, ...holds];
  }

  filter() {
    const typed = $("find-class").value.trim(), found = this.matches(), first = typed ? found[0] : undefined;
    const list = $("classes");
    list.style.minHeight = typed ? list.style.minHeight || `${list.offsetHeight}px` : ""; // the item keeps its place
    for (const button of list.querySelectorAll("button")) {
      button.parentElement.hidden = !found.includes(button.dataset.name);
      button.toggleAttribute("data-enter", button.dataset.name === first);
    }
    say($("find-count"), typed ? `${count(found.length, "class", "classes")} found, Enter takes ${first ?? "none"}` : "");
  }

  findKey(event) {
    if (event.key === "Enter" && this.matches().length && $("find-class").value.trim()) this.label(this.matches()[0]);
    else if (event.key !== "Escape") return;
    event.preventDefault();
    this.clearFilter();
    $("stage").focus({ preventScroll: true });
  }

  clearFilter() {
    if ($("find-class").value === "") return;
    $("find-class").value = "";
    this.filter();
  }
}
