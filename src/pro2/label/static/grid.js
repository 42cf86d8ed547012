// Items the model takes for one class: mark those that are not, confirm the rest with one key.

import { ask } from "./api.js";
import { $, count, h, percent, picture } from "./dom.js";

export class Grid {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.items = [];
    this.label = ""; // of the items on screen; the class that is chosen may still be on its way
    this.asked = 0;
    this.setClasses(about.classes);
    $("grid-class").onchange = () => this.load();
    $("grid-order").onchange = () => this.load();
    $("confirm").onclick = () => this.confirm();
    $("tiles").onchange = () => this.tell();
  }

  setClasses(classes) {
    const select = $("grid-class");
    if ([...select.options].map((option) => option.value).join("\0") === classes.join("\0")) return;
    const before = select.value;
    select.replaceChildren(...classes.map((name) => h("option", { value: name }, name)));
    if (classes.includes(before)) select.value = before;
  }

  async load() {
    const number = ++this.asked, label = $("grid-class").value;
    const found = await ask("grid", { label, order: $("grid-order").value }).catch(() => null);
    if (found === null || number !== this.asked) return; // a newer question is on its way
    this.label = label;
    const answered = this.outbox.rows;
    this.items = found.items.filter((item) => !answered.has(item.row));
    $("grid-note").textContent = this.items.length
      ? `${count(found.total, "unlabelled item")} of this kind. Mark the ones that are not ${this.label}.`
      : `Nothing that is unlabelled looks like ${this.label} to the model.`;
    $("tiles").replaceChildren(...this.items.map((item) => h("li", {}, this.tile(item))));
    this.tell();
  }

  tile(item) {
    const box = h("input", { type: "checkbox", value: item.row, "aria-label": `${item.name}: not ${this.label}` });
    const wrong = h("span", { className: "wrong", "aria-hidden": "true" }, `not ${this.label}`);
    const sure = item.sure === null ? null : h("span", { className: "sure" }, percent(item.sure));
    return h("label", { className: "tile" }, box, this.face(item), sure, wrong);
  }

  face(item) {
    const words = item.text ?? (item.columns.map(([, value]) => value).join(", ") || item.name);
    if (!item.image) return h("span", { className: "short" }, words.slice(0, 400));
    const face = picture(item.row, 320, "", () => face.replaceWith(h("span", { className: "short" }, "This image cannot be shown")));
    face.loading = "lazy";
    return face;
  }

  boxes() { return [...$("tiles").querySelectorAll("input")]; }

  tell() {
    const wrong = this.boxes().filter((box) => box.checked).length;
    const right = this.items.length - wrong;
    $("confirm-bar").hidden = !this.items.length;
    $("confirm-text").textContent = right ? `Confirm ${right} as ${this.label}` : "Set all of them aside";
    $("confirm-note").textContent = wrong ? `${wrong} marked: you will see ${wrong === 1 ? "it" : "them"} one by one.` : "None marked.";
  }

  confirm() {
    if (!this.items.length) return;
    const wrong = this.boxes().filter((box) => box.checked).map((box) => Number(box.value));
    const rows = this.items.map((item) => item.row).filter((row) => !wrong.includes(row));
    this.outbox.put({ kind: rows.length ? "label" : "aside", label: this.label, rows, wrong });
    this.items = [];
    $("tiles").replaceChildren();
    this.tell();
  }

  saved(action) {
    if (action.wrong !== undefined || action.kind === "undo") this.load();
  }

  key(key) {
    if (key === "Enter") this.confirm();
    else if (key.startsWith("Arrow")) this.move(key);
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
