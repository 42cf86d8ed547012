// Everything labelled: what is in doubt first, one click to correct.

import { ask } from "./api.js";
import { $, count, h, percent, picture } from "./dom.js";

export class LabelledList {
  constructor(outbox, about) {
    this.outbox = outbox;
    this.classes = about.classes;
    this.asked = 0;
    $("search").oninput = () => this.load();
    $("more").onclick = () => this.load(this.items.length);
  }

  setClasses(classes) { this.classes = classes; }

  async load(offset = 0) {
    const number = ++this.asked;
    const found = await ask("labelled", { q: $("search").value, offset }).catch(() => null);
    if (found === null || number !== this.asked) return; // a newer search is on its way
    this.items = offset ? [...this.items, ...found.items] : found.items;
    this.skipped = found.skipped;
    this.draw(found);
  }

  draw(found) {
    const doubtful = this.items.filter((item) => item.doubt > 0);
    const agreed = this.items.filter((item) => item.doubt === 0);
    const asked = $("search").value.trim() !== "";
    $("list-note").textContent = found.total
      ? `${count(found.total, "label")}${asked ? " found" : ""}, ${found.doubtful} in doubt`
      : asked ? "Nothing found." : "Nothing is labelled yet.";
    $("lists").replaceChildren(
      ...this.list("In doubt", doubtful), ...this.list("Agreed", agreed), ...this.list("Skipped", this.skipped),
    );
    $("more").hidden = this.items.length >= found.total;
  }

  list(title, items) {
    if (!items.length) return [];
    return [h("section", { className: "list", "aria-label": title }, h("h3", {}, title), h("ul", {}, ...items.map((item) => this.entry(item))))];
  }

  entry(item) {
    const what = h("div", { className: "what" }, h("p", {}, words(item).slice(0, 400)), h("p", { className: "note" }, this.story(item)));
    return h("li", { className: "entry", data: { row: item.row } }, this.thumb(item), what, h("div", { className: "act" }, ...this.actions(item)));
  }

  thumb(item) {
    if (!item.image) return null; // its text stands beside
    const face = picture(item.row, 320, "", () => face.replaceWith(h("span", { className: "thumb none" }, "cannot be shown")));
    face.className = "thumb";
    face.loading = "lazy";
    return face;
  }

  story(item) {
    if (item.label === undefined) return "Skipped";
    const people = Object.entries(item.opinions);
    if (item.doubt >= 2) return people.map(([name, label]) => `${name}: ${label}`).join(", ");
    const by = people.length && people[0][0] ? ` by ${people.map(([name]) => name).join(" and ")}` : "";
    if (item.doubt > 0) return `Labelled ${item.label}${by}. The model says ${item.said}${item.doubt > 0.02 ? `, ${percent(item.doubt)} sure` : ""}.`;
    return `Labelled ${item.label}${by}`;
  }

  actions(item) {
    const others = item.doubt >= 2 ? [...new Set(Object.values(item.opinions))] : item.doubt > 0 ? [item.said] : [];
    const buttons = others.filter((name) => item.doubt >= 2 || name !== item.label).map((name) => (
      h("button", { type: "button", onclick: () => this.settle(item, name) }, item.doubt >= 2 ? `It is ${name}` : `Change to ${name}`)
    ));
    const options = this.classes.map((name) => h("option", { value: name, selected: name === item.label }, name));
    if (item.label === undefined) options.unshift(h("option", { value: "", selected: true }, "label it …"));
    const properties = { "aria-label": `Label of ${item.name}`, onchange: (event) => this.settle(item, event.target.value) };
    return [...buttons, h("select", properties, ...options)];
  }

  settle(item, label) {
    this.outbox.put({ kind: "settle", rows: [item.row], label });
  }

  saved(action) {
    if (action.kind === "settle" || action.kind === "undo") this.load();
  }

  key(key) {
    if (key !== "/") return false;
    $("search").focus();
    return true;
  }
}

const words = (item) => item.text ?? item.name;
