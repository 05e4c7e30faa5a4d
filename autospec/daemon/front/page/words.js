// Numbers in words, and elements. All text becomes text nodes: names and reasons are not trusted.

export const DASH = "–";

export const known = (value) => typeof value === "number" && Number.isFinite(value);

export function number(value, digits = 1, unit = "") {
  if (!known(value)) return DASH;
  const shown = value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
  return unit ? `${shown} ${unit}` : shown;
}

export const percent = (share, digits = 0) => (known(share) ? `${(100 * share).toFixed(digits)} %` : DASH);

export const times = (ratio) => (known(ratio) ? `${ratio.toFixed(2)}×` : DASH);

export function span(seconds) {
  if (!known(seconds)) return DASH;
  const whole = Math.max(0, Math.round(seconds));
  const parts = [
    [Math.floor(whole / 86400), "d"],
    [Math.floor(whole / 3600) % 24, "h"],
    [Math.floor(whole / 60) % 60, "min"],
    [whole % 60, "s"],
  ];
  const first = parts.findIndex(([count]) => count);
  if (first < 0) return "0 s";
  return parts
    .slice(first, first + 2)
    .filter(([count]) => count)
    .map((part) => part.join(" "))
    .join(" ");
}

/** The time of day of `at` (seconds since 1970); with the date if that is another day. */
export function clock(at, now = at) {
  const [then, today] = [new Date(1000 * at), new Date(1000 * now)];
  const pad = (count) => String(count).padStart(2, "0");
  const time = [then.getHours(), then.getMinutes(), then.getSeconds()].map(pad).join(":");
  if (then.toDateString() === today.toDateString()) return time;
  return `${then.getFullYear()}-${pad(then.getMonth() + 1)}-${pad(then.getDate())} ${time}`;
}

const SVG = "http://www.w3.org/2000/svg";

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children.filter((child) => child !== null));
  return element;
}

export const h = (tag, attributes = {}, ...children) =>
  made(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  made(document.createElementNS(SVG, tag), attributes, children);

/** A table; the first cell of each row heads it. */
export function table(caption, heads, rows) {
  const cells = (row) =>
    row.map((cell, place) => (place ? h("td", {}, cell) : h("th", { scope: "row" }, cell)));
  return h(
    "div",
    { class: "scroll", tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table",
      {},
      h("caption", {}, caption),
      h("thead", {}, h("tr", {}, ...heads.map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, ...rows.map((row) => h("tr", {}, ...cells(row)))),
    ),
  );
}

/** Pairs of term and description. */
export const pairs = (list) =>
  list
    .filter((pair) => pair !== null)
    .map(([term, value, note]) =>
      h("div", {}, h("dt", {}, term), h("dd", {}, value, note ? h("small", {}, note) : null)),
    );
