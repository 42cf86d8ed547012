// Requests to the server, and an outbox that loses nothing when the connection does.

const params = new URLSearchParams(location.search);
export const who = { name: params.get("as") ?? "" };

export class Refused extends Error {}

/** GET; throws `Refused` with the server's message, or a TypeError when nobody answers. */
export async function ask(path, query = {}) {
  return read(await fetch(`api/${path}?${new URLSearchParams({ as: who.name, ...query })}`));
}

export async function send(path, body) {
  const address = `api/${path}?${new URLSearchParams({ as: who.name })}`;
  const headers = { "Content-Type": "application/json" };
  return read(await fetch(address, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function read(answer) {
  const content = await answer.json().catch(() => ({ error: "The server's answer is incomplete." }));
  if (answer.ok) return content;
  const problem = answer.status < 500 ? new Refused(content.error) : new Error(content.error);
  problem.unwritable = answer.status === 507;
  throw problem;
}

/** `ask` for answers of which only the newest counts: null when nobody answers or a newer request is on its way. */
export function newest(path) {
  let number = 0;
  return async (query) => {
    const own = ++number, answer = await ask(path, query).catch(() => null);
    return own === number ? answer : null;
  };
}

export const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * seconds));

/** Actions to send, in order, one at a time. They survive a lost connection and a reload of the page. */
export class Outbox {
  /** `onState(state, detail, action)`: "saved", "waiting", "lost", "unwritable" or "refused"; detail is the server's
   *  answer or a message. */
  constructor(onState) {
    this.onState = onState;
    this.storageKey = `pro2-outbox ${location.pathname} ${who.name}`;
    this.actions = JSON.parse(sessionStorage.getItem(this.storageKey) ?? "[]");
    this.busy = false;
  }

  get length() { return this.actions.length; }

  /** Those items that are in no action which the server does not know yet. */
  unanswered(items) {
    const answers = this.actions.filter(({ kind }) => kind !== "note");
    const rows = new Set(answers.flatMap(({ rows = [], wrong = [] }) => [...rows, ...wrong]));
    return items.filter((item) => !rows.has(item.row));
  }

  /** Send an action when its turn comes. By its key the server recognizes an action that is sent again. */
  put(action) {
    const key = `${Date.now().toString(36)}-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    this.actions.push({ ...action, key });
    this.store();
    this.onState("waiting");
    this.run();
  }

  store() { sessionStorage.setItem(this.storageKey, JSON.stringify(this.actions)); }

  shift() {
    const action = this.actions.shift();
    this.store();
    return action;
  }

  async run() {
    if (this.busy) return;
    this.busy = true;
    let pause = 0.2;
    while (this.actions.length) {
      try {
        const answer = await send("act", this.actions[0]);
        pause = 0.2;
        this.onState("saved", answer, this.shift());
      } catch (problem) {
        if (problem instanceof Refused) {
          this.onState("refused", problem.message, this.shift()); // it would be refused again
        } else if (problem.unwritable) {
          this.onState("unwritable", problem.message);
          break; // continues when the person says so
        } else {
          this.onState("lost");
          await wait(pause);
          pause = Math.min(2, 1.6 * pause);
        }
      }
    }
    this.busy = false;
  }
}

/** Calls `onFigures` after every change, forever; `onLost` and `onFound` as the connection goes and comes back. */
export async function follow(onFigures, onLost, onFound) {
  let version = "", lost = false;
  for (;;) {
    try {
      const figures = await ask("figures", { after: version });
      if (lost) onFound();
      lost = false;
      version = figures.version;
      onFigures(figures);
    } catch (problem) {
      if (problem instanceof Refused) return;
      if (!lost) onLost();
      lost = true;
      await wait(0.5);
    }
  }
}
