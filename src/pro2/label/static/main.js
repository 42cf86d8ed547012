// Puts the page together: views, keys, dialogs, and what happens when the line is lost.

import { Outbox, Refused, ask, follow, send, wait, who } from "./api.js";
import { $, count, h, say } from "./dom.js";
import { Grid } from "./grid.js";
import { keyOf } from "./keys.js";
import { LabelledList } from "./labelled.js";
import { OneByOne } from "./one.js";
import { showFigures } from "./panel.js";

const page = { paused: false, views: {}, view: "one", version: 0 };

async function open() {
  const about = await firstAnswer();
  document.title = `Label ${about.title}`;
  say($("title"), about.title);
  $("person").hidden = !who.name;
  say($("person"), who.name);
  page.outbox = new Outbox(hear);
  page.views = { one: new OneByOne(page.outbox, about), grid: new Grid(page.outbox, about), labelled: new LabelledList(page.outbox, about) };
  if (matchMedia("(max-width: 900px)").matches) for (const part of document.querySelectorAll(".figures")) part.open = false;
  addEventListener("hashchange", turn);
  addEventListener("keydown", press);
  dialogs();
  turn();
  status("saved", "All saved");
  page.outbox.run(); // what an earlier page could not send
  follow(figures, lost, found);
}

/** The page's state; asks who is labelling when that is not known, and waits for a server that is not there yet. */
async function firstAnswer() {
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
  await new Promise((go) => {
    const choose = (name) => {
      who.name = name;
      history.replaceState(null, "", `?as=${encodeURIComponent(name)}${location.hash}`);
      $("dialog-who").close();
      go();
    };
    const buttons = annotators.map((name) => h("button", { type: "button", onclick: () => choose(name) }, name));
    $("people").replaceChildren(...buttons.map((button) => h("li", {}, button)));
    $("dialog-who").oncancel = (event) => event.preventDefault();
    $("dialog-who").showModal();
  });
}

function hear(state, detail, action) {
  if (state === "saved") {
    page.version = detail.version;
    if (page.outbox.length) status("waiting", "Saving …");
    else status("saved", "All saved");
    resume();
    page.views.one.saved(detail, action);
    if (page.view !== "one") page.views[page.view].saved(action);
  } else if (state === "waiting") {
    status("waiting", "Saving …");
  } else if (state === "refused") {
    status("saved", detail);
    page.views.one.refill();
  } else if (state === "unwritable") {
    page.paused = true;
    banner(`${detail[0].toUpperCase()}${detail.slice(1)}. Labelling is paused until that is mended.`, true);
    status("lost", `${count(page.outbox.length, "label")} not saved`);
  } else {
    lost();
  }
}

function lost() {
  const waiting = page.outbox.length;
  const kept = waiting ? ` Your last ${waiting === 1 ? "label is" : `${waiting} labels are`} kept here until then.` : "";
  banner(`The server does not answer. This page keeps trying.${kept}`);
  status("lost", "Reconnecting …");
}

function found() {
  page.version = 0; // it may be another server
  resume();
  if (page.outbox.length) status("waiting", "Connected again, saving …");
  else status("saved", "Connected again, all saved");
  page.outbox.run();
  page.views.one.refill();
}

function resume() {
  page.paused = false;
  $("banner").hidden = true;
}

function banner(text, retry = false) {
  say($("banner-text"), text);
  $("banner-retry").hidden = !retry;
  $("banner").hidden = false;
}

function status(state, text) {
  $("saved").dataset.state = state;
  say($("saved"), text);
}

function figures(found) {
  if (found.version < page.version) return; // on its way while an action was answered; newer ones follow
  showFigures(found);
  for (const view of Object.values(page.views)) view.setClasses(found.classes);
  page.views.one.freshGuesses(found.guesses);
  const shown = page.views.one.shown;
  // somebody else, or this person in another window, has answered the item on screen
  if (shown && !page.outbox.length && !found.hands.includes(shown.row)) {
    page.views.one.shown = null;
    page.views.one.refill();
  }
}

function turn() {
  const wanted = location.hash.slice(1);
  page.view = wanted in page.views ? wanted : "one";
  for (const link of document.querySelectorAll(".views a")) {
    if (link.dataset.view === page.view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  for (const name of Object.keys(page.views)) $(`view-${name}`).hidden = name !== page.view;
  page.views[page.view].load?.();
}

function press(event) {
  if (page.paused || !$("keys-on").checked) return;
  const key = keyOf(event);
  if (key === null) return;
  if (key === "n" && page.view === "one") $("open-new").click();
  else if (key === "?") $("dialog-keys").showModal();
  else if (key === "u") page.views.one.undo();
  else if (!page.views[page.view].key(key)) return;
  event.preventDefault();
}

function dialogs() {
  $("open-keys").onclick = () => $("dialog-keys").showModal();
  $("banner-retry").onclick = () => { resume(); page.outbox.run(); };
  $("open-new").onclick = () => { $("new-name").value = ""; say($("new-problem"), ""); $("dialog-new").showModal(); };
  $("new-cancel").onclick = () => $("dialog-new").close();
  $("new-form").onsubmit = addClass;
  $("open-done").onclick = () => { $("done-result").replaceChildren(); $("dialog-done").showModal(); };
  $("done-close").onclick = () => $("dialog-done").close();
  $("done-write").onclick = write;
}

function addClass(event) {
  event.preventDefault();
  const name = $("new-name").value.trim().replace(/\s+/g, " ");
  const same = page.views.one.classes.find((each) => each.toLowerCase() === name.toLowerCase());
  if (!name || same) {
    say($("new-problem"), name ? `There is a class “${same}” already.` : "Give it a name.");
    return;
  }
  $("dialog-new").close();
  page.views.one.create(name);
  $("stage").focus({ preventScroll: true });
}

async function write() {
  $("done-write").disabled = true;
  say($("done-result"), "Writing …");
  try {
    const { files, folder } = await send("done", {});
    const rows = files.map(({ name, about }) => h("li", {}, h("code", {}, name), h("span", { className: "note" }, about)));
    $("done-result").replaceChildren(h("p", {}, `Written to the folder ${folder}:`), h("ul", { className: "files" }, ...rows));
  } catch (problem) {
    say($("done-result"), problem.message);
  }
  $("done-write").disabled = false;
}

open();
