// Talking to the server: questions, and an outbox that loses nothing when the line does.

const params = new URLSearchParams(location.search);
export const who = { name: params.get("as") ?? "" };

export class Refused extends Error {}

/** GET; throws `Refused` with the server's words, or a TypeError when nobody answers. */
export async function ask(path, query = {}) {
  const answer = await fetch(`api/${path}?${new URLSearchParams({ as: who.name, ...query })}`);
  return read(answer);
}

export async function send(path, body) {
  const address = `api/${path}?${new URLSearchParams({ as: who.name })}`;
  const headers = { "Content-Type": "application/json" };
  return read(await fetch(address, { method: "POST", headers, body: JSON.stringify(body) }));
}

async function read(answer) {
  const found = await answer.json().catch(() => ({ error: "The server did not answer in full." }));
  if (answer.ok) return found;
  const problem = answer.status < 500 ? new Refused(found.error) : new Error(found.error);
  problem.unwritable = answer.status === 507;
  throw problem;
}

export const wait = (seconds) => new Promise((go) => setTimeout(go, 1000 * seconds));

/** Actions on their way, in order, one at a time. They survive a lost line and a reloaded page. */
export class Outbox {
  /** `hear(state, detail)`: "saved" with the answer, "waiting", "lost", "unwritable" or "refused" with a message. */
  constructor(hear) {
    this.hear = hear;
    this.shelf = `pro2-outbox ${location.pathname} ${who.name}`;
    this.actions = JSON.parse(sessionStorage.getItem(this.shelf) ?? "[]");
    this.busy = false;
  }

  get length() { return this.actions.length; }

  /** Rows that have an answer which the server does not know yet. */
  get rows() { return new Set(this.actions.flatMap((action) => action.rows ?? [])); }

  /** Send an action when its turn comes; `hear` is told once it is on disk. The key lets the server know it again. */
  put(action) {
    const key = `${Date.now().toString(36)}-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`;
    this.actions.push({ ...action, key });
    this.keep();
    this.hear("waiting");
    this.run();
  }

  keep() { sessionStorage.setItem(this.shelf, JSON.stringify(this.actions)); }

  async run() {
    if (this.busy) return;
    this.busy = true;
    let pause = 0.2;
    while (this.actions.length) {
      try {
        const answer = await send("act", this.actions[0]);
        const action = this.actions.shift();
        this.keep();
        pause = 0.2;
        this.hear("saved", answer, action);
      } catch (problem) {
        if (problem instanceof Refused) {
          const action = this.actions.shift(); // it would be refused again
          this.keep();
          this.hear("refused", problem.message, action);
        } else if (problem.unwritable) {
          this.hear("unwritable", problem.message);
          break; // goes on when the person says so
        } else {
          this.hear("lost");
          await wait(pause);
          pause = Math.min(2, 1.6 * pause);
        }
      }
    }
    this.busy = false;
  }
}

/** Calls `hear(figures)` after every change, for ever; `lost()` and `found()` when the line goes and comes back. */
export async function follow(hear, lost, found) {
  let version = "", gone = false;
  for (;;) {
    try {
      const figures = await ask("figures", { after: version });
      if (gone) found();
      gone = false;
      version = figures.version;
      hear(figures);
    } catch (problem) {
      if (problem instanceof Refused) return;
      if (!gone) lost();
      gone = true;
      await wait(0.5);
    }
  }
}
