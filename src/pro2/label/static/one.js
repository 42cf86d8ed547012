// One item at a time. The next ones are loaded and decoded before they are needed.

import { ask } from "./api.js";
import { $, NONE, count, h, moreLike, percent, picture, setText } from "./dom.js";

const ENLARGE = 8; // times its own size, at most: a tiny picture on a whole screen shows nothing but its pixels
const FULL = 65500; // pixels: an image as it is
const MANY = 20; // from this many classes on a letter starts the search instead: nobody remembers so many keys
const LONG_SET = 6; // classes of a label set that are named; more are only outlined
const LETTERS = [..."abcdefghijklopqrvwy"]; // without those of the buttons below the classes

const BUTTONS = { m: "more-like", n: "open-new", s: "skip", t: "open-note", x: "none", z: "zoom" };

/** Keys of each class, in the order of the classes: a digit for the first nine, a letter of its name if one is free.
 *  A class that is added later never changes the keys of those before it. Classes that are digits have themselves. */
function keysOf(classes) {
  const free = new Set(classes.length > MANY ? [] : LETTERS);
  const isDigit = (name) => /^[0-9]$/.test(name);
  const numbered = classes.length > 0 && isDigit(classes[0]);
  return classes.map((name, i) => {
    const position = i < 9 ? String(i + 1) : undefined;
    const digit = numbered ? (isDigit(name) ? name : undefined) : position;
    const letter = [...name.toLowerCase()].find((each) => free.has(each)) ?? (digit ? undefined : [...free][0]);
    free.delete(letter);
    return [digit, letter].filter(Boolean);
  });
}

export class OneByOne {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.assigned = []; // items that the server has assigned, the one on screen first
    this.pictures = new Map();
    this.shown = null;
    this.marked = new Set(); // rows marked in the grid: they come first, then the grid comes back
    this.setClasses(about.classes);
    $("accept").onclick = () => this.accept();
    $("skip").onclick = () => this.answer({ kind: "skip" });
    $("none").onclick = () => this.answer({ kind: "none" });
    $("undo").onclick = () => this.undo();
    $("open-note").onclick = () => this.openNote();
    $("note-form").onsubmit = () => this.saveNote();
    $("zoom").onclick = () => this.zoom();
    $("dialog-zoom").onkeydown = (event) => { if (event.key === "z") $("dialog-zoom").close(); };
    $("more-like").onclick = () => this.shown && moreLike(this.shown, this.shown.guess);
    $("find-class").oninput = () => this.filter();
    $("find-class").onkeydown = (event) => this.findKey(event);
    this.take(about.assigned);
  }

  setClasses(classes) {
    if (this.classes?.join("\0") === classes.join("\0")) return;
    this.classes = classes;
    const keys = keysOf(classes);
    this.byKey = new Map(classes.flatMap((name, i) => keys[i].map((key) => [key, name])));
    $("classes").replaceChildren(...classes.map((name, i) => h("li", {}, this.button(name, keys[i]))));
    $("classes").classList.toggle("long-names", classes.some((name) => name.length > 16));
    $("find").hidden = classes.length <= 9;
    document.body.classList.toggle("many-classes", this.hasMany);
    this.showGuess();
  }

  get hasMany() { return this.classes.length > MANY; }

  button(name, keys) {
    const caps = h("span", { className: "keys-of", "aria-hidden": "true" }, ...keys.map((key) => h("kbd", {}, key)));
    const properties = { type: "button", data: { name }, onclick: () => this.label(name) };
    if (keys.length) properties["aria-keyshortcuts"] = keys.join(" ");
    // a long name may break after an underscore
    const parts = name.split(/(?<=_)/).flatMap((part, i) => (i ? [h("wbr"), part] : [part]));
    return h("button", properties, caps, h("span", {}, ...parts));
  }

  /** The server's list of assigned items; what has been answered here meanwhile is left out. */
  take(assigned, showFirst = false) {
    const fresh = this.outbox.unanswered(assigned);
    fresh.sort((a, b) => this.marked.has(b.row) - this.marked.has(a.row));
    const at = this.shown !== null && !showFirst ? fresh.findIndex((item) => item.row === this.shown.row) : -1;
    // the item on screen stays as it is, guess included: nothing changes under the finger
    if (at >= 0) fresh.unshift({ ...fresh.splice(at, 1)[0], ...this.shown });
    this.assigned = fresh;
    this.prepare();
    if (at < 0) this.show();
  }

  updateGuesses(guesses) {
    for (const item of this.assigned) {
      const isShown = item.row === this.shown?.row;
      if (!guesses[item.row]?.guess || (isShown && this.shown.guess !== null)) continue;
      Object.assign(item, guesses[item.row]);
      if (isShown) {
        this.shown = item;
        this.showGuess();
      }
    }
  }

  prepare() {
    const next = this.assigned.slice(0, 4);
    const size = Math.max($("stage").clientWidth, 640) * devicePixelRatio > 1400 ? 2560 : 1280;
    for (const item of next) {
      if (!item.image || this.pictures.has(item.row)) continue;
      const image = picture(item.row, size, `Item ${item.name}`, (reason) => this.showBroken(item.row, reason));
      image.onload = () => {
        image.style.maxWidth = `${ENLARGE * image.naturalWidth}px`;
        image.style.maxHeight = `${ENLARGE * image.naturalHeight}px`;
      };
      image.onclick = () => this.zoom();
      image.decode().catch(() => {}); // onerror reports errors
      this.pictures.set(item.row, image);
    }
    for (const row of this.pictures.keys()) if (!next.some((item) => item.row === row)) this.pictures.delete(row);
  }

  showBroken(row, reason) {
    const note = h("p", { className: "empty" }, h("strong", {}, "This image cannot be shown"), reason);
    this.pictures.set(row, note);
    if (this.shown?.row === row) this.draw();
  }

  show() {
    this.shown = this.assigned[0] ?? null;
    this.draw();
    this.showGuess();
    if (this.shown === null) this.refill();
  }

  draw() {
    const item = this.shown;
    $("zoom").hidden = !(this.pictures.get(item?.row) instanceof Image);
    if (item === null) {
      const [title, text] = this.outbox.length
        ? ["The next item is on its way."]
        : ["Every item is labelled or skipped.", "Done writes the results."];
      $("stage").replaceChildren(h("p", { className: "empty" }, h("strong", {}, title), text));
    } else if (item.image) {
      const columns = item.columns.map(([name, value]) => h("span", {}, `${name} ${value}`));
      if (item.note) columns.push(h("span", {}, `Note: ${item.note}`));
      const caption = h("figcaption", {}, h("span", { className: "name" }, item.name), ...columns);
      $("stage").replaceChildren(this.pictures.get(item.row), caption);
    } else {
      $("stage").replaceChildren(this.reading(item));
    }
  }

  reading(item) {
    const pairs = item.note ? [...item.columns, ["Note", item.note]] : item.columns;
    const rows = pairs.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]);
    const columns = rows.length ? h("dl", {}, ...rows) : null;
    const text = item.text ?? (columns ? null : item.name);
    const content = [text === null ? null : h("p", { className: "text" }, text), columns];
    const properties = { className: "reading", tabIndex: 0, role: "group", "aria-label": `Item ${item.name}` };
    return h("div", properties, ...content);
  }

  showGuess() {
    const item = this.shown, line = $("guess");
    for (const button of $("classes").querySelectorAll("button")) {
      button.toggleAttribute("data-guess", button.dataset.name === item?.guess);
      button.toggleAttribute("data-possible", item?.set.includes(button.dataset.name) ?? false);
      button.disabled = item === null;
    }
    for (const id of ["skip", "none", "more-like", "open-note", "open-new"]) $(id).disabled = item === null;
    $("accept").disabled = !item?.guess;
    $("none").toggleAttribute("data-possible", item?.unlike ?? false);
    setText($("none").firstElementChild, item?.unlike ? "None of these?" : "None of these");
    setText($("unlike"), item?.unlike ? "Unlike all labelled items" : "");
    if (!item?.guess) {
      setText(line, item ? "No prediction yet: choose a class." : "");
      return;
    }
    // before the first label nothing has checked the source model's own probability here
    const probability = item.probability === null ? ", by the source model" : `, ${percent(item.probability)}`;
    line.replaceChildren(
      h("span", {}, "Prediction: ", h("b", {}, item.guess), h("span", { className: "sure" }, probability)),
      h("span", { className: "note" }, this.among(item.set)),
    );
  }

  /** The label set in words. */
  among(names) {
    if (!names.length) return "";
    const or = new Intl.ListFormat("en-GB", { type: "disjunction" });
    const classes = names.length > LONG_SET ? `one of ${names.length} outlined classes` : or.format(names);
    return `${classes}: right for 90% of items`;
  }

  answer(action) {
    if (this.shown === null) return;
    const row = this.shown.row;
    this.outbox.put({ ...action, rows: [row] });
    this.assigned = this.assigned.filter((item) => item.row !== row);
    this.clearFilter();
    this.show();
    if (document.activeElement?.closest("#view-one")) $("stage").focus({ preventScroll: true });
    if (this.marked.delete(row) && !this.marked.size) location.hash = "#grid";
  }

  label(name) { this.answer({ kind: "label", label: name }); }
  accept() { if (this.shown?.guess) this.label(this.shown.guess); }
  undo() { this.outbox.put({ kind: "undo" }); }

  openNote() {
    $("note-text").value = this.shown.note;
    $("dialog-note").showModal();
  }

  saveNote() {
    this.shown.note = $("note-text").value.trim();
    this.outbox.put({ kind: "note", rows: [this.shown.row], label: this.shown.note });
    this.draw();
  }

  /** The image as it is, or as large as the window, whichever is larger. */
  zoom() {
    if ($("zoom").hidden) return;
    const image = picture(this.shown.row, FULL, `Item ${this.shown.name}`, () => {});
    image.onload = () => {
      const scale = Math.max(1, Math.min(innerWidth / image.naturalWidth, innerHeight / image.naturalHeight));
      image.width = scale * image.naturalWidth;
    };
    $("zoom-image").replaceChildren(image);
    $("dialog-zoom").showModal();
  }

  /** A class that did not exist, for the item on screen. */
  create(name) {
    this.outbox.put({ kind: "class", label: name });
    this.setClasses([...this.classes, name]);
    this.label(name);
  }

  saved(answer, action) {
    this.marked = new Set(action.wrong ?? this.marked);
    this.take(answer.assigned, action.kind === "undo" || action.wrong?.length > 0);
    if (action.wrong?.length) location.hash = "#one";
    if (!answer.undone) return;
    const { kind, label, rows } = answer.undone;
    const what = rows.length > 1 ? count(rows.length, "label") : label || (label === null ? "the skip" : NONE);
    setText($("saved"), `Undone: ${{ class: `class ${label}`, note: "the note" }[kind] ?? what}`);
  }

  async refill() {
    if (this.outbox.length) return; // the answer to what is on its way brings the next items
    const state = await ask("state").catch(() => null);
    if (state?.assigned.length && this.shown === null) this.take(state.assigned);
  }

  key(key) {
    if (key === "Enter") this.accept();
    else if (this.byKey.has(key)) this.label(this.byKey.get(key));
    else if (key === "/" || (this.hasMany && /^[a-mo-z]$/.test(key))) this.startFind(key);
    else if (key in BUTTONS) $(BUTTONS[key]).click();
    else return false;
    return true;
  }

  // finding a class by its name

  startFind(key) {
    if ($("find").hidden) return;
    $("find-class").focus();
    $("find-class").value = key === "/" ? "" : key;
    this.filter();
  }

  /** Classes whose names start with what is typed, then those that contain it. */
  matches() {
    const typed = $("find-class").value.trim().toLowerCase();
    const containing = this.classes.filter((name) => name.toLowerCase().includes(typed));
    const starts = (name) => name.toLowerCase().startsWith(typed);
    return [...containing.filter(starts), ...containing.filter((name) => !starts(name))];
  }

  filter() {
    const typed = $("find-class").value.trim(), matches = this.matches(), first = typed ? matches[0] : undefined;
    const list = $("classes");
    list.style.minHeight = typed ? list.style.minHeight || `${list.offsetHeight}px` : ""; // the item keeps its place
    for (const button of list.querySelectorAll("button")) {
      button.parentElement.hidden = !matches.includes(button.dataset.name);
      button.toggleAttribute("data-enter", button.dataset.name === first);
    }
    const n = count(matches.length, "class", "classes");
    setText($("find-count"), typed ? `${n} found, Enter takes ${first ?? "none"}` : "");
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
