// The page's elements, and how states are shown: text only ever goes in as text.

export const $ = (id) => document.getElementById(id);

/** An element with properties and children; strings become text nodes. */
export function make(name, properties = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(properties)) {
    if (key.startsWith("aria-") || key === "role" || key === "scope") element.setAttribute(key, value);
    else element[key] = value;
  }
  element.append(...children);
  return element;
}

/** Show a panel's rows, or in their place a sentence that says what is the matter and what to do. */
export function showState(panel, message, kind = "note") {
  const state = $(`${panel}-state`);
  state.textContent = message ?? "";
  state.hidden = !message;
  state.dataset.kind = kind;
  const body = $(`${panel}-body`);
  if (body) body.hidden = Boolean(message);
}

/** Say something to those who do not see it, politely and only where it is new. */
export function say(text) {
  if ($("said").textContent !== text) $("said").textContent = text;
}

/** A list of term and description pairs; a colour's name makes a swatch. */
export function showTotals(list, pairs) {
  list.replaceChildren(
    ...pairs.map(([term, value, swatch]) => {
      const label = make("dt", {}, term);
      if (swatch) label.prepend(make("i", { className: `swatch ${swatch}` }));
      return make("div", {}, label, make("dd", {}, value));
    }),
  );
}
