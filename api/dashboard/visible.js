// Text of unknown origin, made harmless to look at: what has no picture, or moves others, is shown as a mark.

const LONGEST = 20000;
// Controls, bidi controls and isolates, zero width and other formats, separators, tags, halves of surrogate pairs.
const ODD = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}\u{115F}\u{1160}\u{3164}\u{FFA0}]/gu;

function mark(character) {
  const code = character.codePointAt(0);
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return "\u2421";
  return `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
}

/** A text as nodes; `breaks` leaves its line feeds as they are. No more than `longest` characters are shown. */
export function visible(text, { breaks = false, longest = LONGEST } = {}) {
  const shown = document.createDocumentFragment();
  const cut = text.length > longest ? text.slice(0, longest) : text;
  let from = 0;
  for (const match of cut.matchAll(ODD)) {
    if (breaks && match[0] === "\n") continue;
    shown.append(cut.slice(from, match.index));
    const odd = document.createElement("span");
    odd.className = "odd";
    odd.textContent = mark(match[0]);
    shown.append(odd);
    from = match.index + match[0].length;
  }
  shown.append(cut.slice(from));
  if (cut.length < text.length) {
    const rest = document.createElement("span");
    rest.className = "odd";
    rest.textContent = `… ${(text.length - cut.length).toLocaleString("en-GB")} more characters`;
    shown.append(rest);
  }
  return shown;
}

/** JSON on lines; numbers as they were sent, also where no number of JavaScript's holds them. */
export const pretty = (value) => JSON.stringify(value, null, 2) ?? "";

/** JSON read so that `pretty` can keep its numbers, where the browser tells how they were written. */
export function parse(text) {
  return JSON.parse(text, (_, value, context) =>
    typeof value === "number" &&
    context &&
    JSON.rawJSON &&
    String(value) !== context.source &&
    !Number.isSafeInteger(value)
      ? JSON.rawJSON(context.source)
      : value,
  );
}
