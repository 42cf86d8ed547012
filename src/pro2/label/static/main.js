// Puts the page together: views, keys, dialogs, and what happens when the connection is lost.

import { Outbox, Refused, ask, follow, send, wait, who } from "./api.js";
import { $, count, h, setText } from "./dom.js";
import { Grid, LabelledList } from "./lists.js";
import { OneByOne } from "./one.js";
import { showFigures } from "./panel.js";

const page = { paused: false, views: {}, view: "one", version: 0 };

async function open() {
  const about = await firstState();
  document.title = `Label ${about.title}`;
  setText($("title"), about.title);
  $("person").hidden = !who.name;
  setText($("person"), who.name);
  const outbox = new Outbox(onOutbox);
  page.outbox = outbox;
  page.views = {
    one: new OneByOne(outbox, about), grid: new Grid(outbox, about), labelled: new LabelledList(outbox, about),
  };
  if (matchMedia("(max-width: 900px)").matches) {
    for (const part of document.querySelectorAll(".figures")) part.open = false;
  }
  addEventListener("hashchange", showView);
  addEventListener("keydown", press);
  addEventListener("more-like", ({ detail }) => {
    page.views.grid.showLike(detail.item, detail.label);
    if (page.view === "grid") page.views.grid.load();
    else location.hash = "#grid";
  });
  connectDialogs();
  showView();
  showStatus("saved", "All saved");
  outbox.run(); // what an earlier page could not send
  follow(onFigures, onLost, onFound);
}

/** The page's state; asks who is labelling when that is not known, and waits for a server that is not there yet. */
async function firstState() {
  for (;;) {
    try {
      return await ask("state");
    } catch (problem) {
      if (problem instanceof Refused) await askWho();
      else await wait(0.5);
    }
  }
}

async function askWho() {
  const { annotators } = await ask("people");
  await new Promise((resolve) => {
    const choose = (name) => {
      who.name = name;
      history.replaceState(null, "", `?as=${encodeURIComponent(name)}${location.hash}`);
      $("dialog-who").close();
      resolve();
    };
    $("people").replaceChildren(...annotators.map((name) => (
      h("li", {}, h("button", { type: "button", onclick: () => choose(name) }, name))
    )));
    $("dialog-who").oncancel = (event) => event.preventDefault();
    $("dialog-who").showModal();
  });
}

function onOutbox(state, detail, action) {
  if (state === "saved") {
    page.version = detail.version;
    if (page.outbox.length) showStatus("waiting", "Saving …");
    else showStatus("saved", "All saved");
    resume();
    page.views.one.saved(detail, action);
    if (page.view !== "one") page.views[page.view].saved(action);
  } else if (state === "waiting") {
    showStatus("waiting", "Saving …");
  } else if (state === "refused") {
    showStatus("saved", detail);
    page.views.one.refill();
  } else if (state === "unwritable") {
    page.paused = true;
    showBanner(`${detail[0].toUpperCase()}${detail.slice(1)}. Labelling is paused until this is fixed.`, true);
    showStatus("lost", `${count(page.outbox.length, "label")} not saved`);
  } else {
    onLost();
  }
}

function onLost() {
  const n = page.outbox.length;
  const kept = n ? ` Your last ${n === 1 ? "label is" : `${n} labels are`} kept here until then.` : "";
  showBanner(`The server does not answer. This page keeps trying.${kept}`);
  showStatus("lost", "Reconnecting …");
}

function onFound() {
  page.version = 0; // it may be another server
  resume();
  if (page.outbox.length) showStatus("waiting", "Connected again, saving …");
  else showStatus("saved", "Connected again, all saved");
  page.outbox.run();
  page.views.one.refill();
}

function resume() {
  page.paused = false;
  $("banner").hidden = true;
}

function showBanner(text, canRetry = false) {
  setText($("banner-text"), text);
  $("banner-retry").hidden = !canRetry;
  $("banner").hidden = false;
}

function showStatus(state, text) {
  $("saved").dataset.state = state;
  setText($("saved"), text);
}

function onFigures(figures) {
  if (figures.version < page.version) return; // older than the answer to the last action; newer ones follow
  const one = page.views.one;
  showFigures(figures);
  for (const view of Object.values(page.views)) view.setClasses(figures.classes);
  one.updateGuesses(figures.guesses);
  page.views[page.view].onFigures?.();
  // somebody else, or this person in another window, has answered the item on screen
  if (one.shown && !page.outbox.length && !figures.assigned.includes(one.shown.row)) {
    one.shown = null;
    one.refill();
  }
}

function showView() {
  const name = location.hash.slice(1);
  page.view = name in page.views ? name : "one";
  for (const link of document.querySelectorAll(".views a")) {
    if (link.dataset.view === page.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const each of Object.keys(page.views)) $(`view-${each}`).hidden = each !== page.view;
  document.body.dataset.view = page.view;
  page.views[page.view].load?.();
}

/** The key of an event as this page understands it, or null when it is meant for something else. */
function keyOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return null;
  const target = event.target;
  if (target.closest("dialog") || target.matches("input:not([type=checkbox]), select, textarea")) return null;
  if (event.key === "Enter" || event.key === " ") return target.closest("button, a, summary") ? null : event.key;
  const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code); // where digits need Shift, the key itself counts
  if (digit) return digit[1];
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}

function press(event) {
  if (page.paused || !$("keys-on").checked) return;
  const key = keyOf(event);
  if (key === null) return;
  if (key === "?") $("dialog-keys").showModal();
  else if (key === "u") page.views.one.undo();
  else if (!page.views[page.view].key(key)) return;
  event.preventDefault();
}

function connectDialogs() {
  for (const each of document.querySelectorAll("[data-close]")) each.onclick = () => each.closest("dialog").close();
  $("open-keys").onclick = () => $("dialog-keys").showModal();
  $("banner-retry").onclick = () => { resume(); page.outbox.run(); };
  $("open-new").onclick = () => {
    $("new-form").reset();
    $("dialog-new").showModal();
  };
  $("new-name").oninput = ({ target }) => {
    const same = page.views.one.classes.find((each) => each.toLowerCase() === className().toLowerCase());
    target.setCustomValidity(same ? `There is already a class “${same}”.` : "");
  };
  $("new-form").onsubmit = () => {
    page.views.one.create(className());
    $("stage").focus({ preventScroll: true });
  };
  $("open-done").onclick = () => { $("done-result").replaceChildren(); $("dialog-done").showModal(); };
  $("done-write").onclick = writeResults;
}

const className = () => $("new-name").value.trim().replace(/\s+/g, " ");

async function writeResults() {
  $("done-write").disabled = true;
  setText($("done-result"), "Writing …");
  try {
    const { files, folder } = await send("done", {});
    const rows = files.map(({ name, about }) => (
      h("li", {}, h("code", {}, name), h("span", { className: "note" }, about))
    ));
    const list = h("ul", { className: "files" }, ...rows);
    $("done-result").replaceChildren(h("p", {}, `Written to the folder ${folder}:`), list);
  } catch (problem) {
    setText($("done-result"), problem.message);
  }
  $("done-write").disabled = false;
}

open();
