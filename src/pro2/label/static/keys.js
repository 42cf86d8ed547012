// Which key stands for which class, and which key was pressed.

const RESERVED = "sun"; // skip, undo, new class
const LETTERS = [..."abcdefghijklmnopqrstuvwxyz"].filter((letter) => !RESERVED.includes(letter));
export const MANY = 20; // from here on a letter starts the search instead: nobody remembers so many keys

/** Keys of each class, in the order of the classes: a digit for the first nine, a letter of its name when one is free.
 *  A class that is added later never changes the keys of those before it. Classes that are digits have themselves. */
export function keysOf(classes) {
  const free = new Set(classes.length > MANY ? [] : LETTERS);
  const numbered = classes.length > 0 && /^[0-9]$/.test(classes[0]);
  return classes.map((name, i) => {
    const digit = numbered ? /^[0-9]$/.exec(name)?.[0] : i < 9 ? String(i + 1) : undefined;
    const own = [...name.toLowerCase()].find((letter) => free.has(letter));
    const letter = own ?? (digit ? undefined : [...free][0]);
    free.delete(letter);
    return [digit, letter].filter(Boolean);
  });
}

/** The key of an event as this page understands it, or null when it is meant for something else. */
export function keyOf(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || event.defaultPrevented) return null;
  const at = event.target;
  if (at.closest("dialog")) return null;
  if (at.matches("input:not([type=checkbox]), select, textarea")) return null;
  if (event.key === "Enter" || event.key === " ") return at.closest("button, a, summary") ? null : event.key;
  const digit = /^(?:Digit|Numpad)([0-9])$/.exec(event.code); // where digits need Shift, the key itself counts
  if (digit) return digit[1];
  return event.key.length === 1 ? event.key.toLowerCase() : event.key;
}
