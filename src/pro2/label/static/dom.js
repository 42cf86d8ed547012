// Small helpers for elements. Text always goes in as text: a file name with markup in it stays a file name.

export const $ = (id) => document.getElementById(id);

/** Element `tag` with properties and children; strings become text, null is left out. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (name === "data") Object.assign(element.dataset, value);
    else if (name.startsWith("aria-")) element.setAttribute(name, value);
    else element[name] = value;
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set text only where it changes: screen readers announce every change of a live region. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const percent = (share) => `${Math.round(100 * share)}%`;

export const NONE = "none of these"; // what an empty label says

/** 1 item, 2 items. */
export const count = (n, one, many = `${one}s`) => `${n.toLocaleString("en")} ${n === 1 ? one : many}`;

/** An image of the pool; when it cannot be shown, `onBroken` gets the reason. */
export function picture(row, size, description, onBroken) {
  const image = new Image();
  image.alt = description;
  image.decoding = "sync"; // it has been decoded ahead; a blank frame would show otherwise
  image.onerror = async () => {
    const answer = await fetch(image.src).then((response) => response.json()).catch(() => null);
    onBroken(answer?.error ?? "the server does not answer");
  };
  image.src = `api/image/${row}?size=${size}`;
  return image;
}

/** Show the items that are most like one, to be labelled with a class. */
export function moreLike(item, label) {
  dispatchEvent(new CustomEvent("more-like", { detail: { item, label } }));
}

/** A small picture of an item in a list, or what stands in for it. */
export function thumbnail(item, className, broken) {
  const image = picture(item.row, 320, "", () => image.replaceWith(broken));
  image.className = className;
  image.loading = "lazy";
  return image;
}
