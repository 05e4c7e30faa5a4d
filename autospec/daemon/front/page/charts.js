// Charts as SVG, drawn for the width that they have. Each has a title and a description in words.

import { clock, known, number, percent, svg } from "./words.js";

const LEFT = 64;
const RIGHT = 10;
const TOP = 8;
const BELOW = 34;

/** Steps of 1, 2 or 5 times a power of ten from 0 to at least `top`, about `count` of them. */
export function ticks(top, count) {
  const rough = Math.max(top, 1e-9) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const last = Math.ceil(top / step - 1e-9);
  return Array.from({ length: last + 1 }, (_, place) => place * step);
}

/** An empty chart in `host` and the functions that place x and y in it. */
function frame(host, { title, told, x, y, height = 190, lanes = 0 }) {
  const width = Math.max(220, host.clientWidth);
  const [right, bottom] = [width - RIGHT, height - BELOW - lanes];
  const scaleX = (value) => LEFT + ((value - x.from) / (x.to - x.from)) * (right - LEFT);
  const scaleY = (value) => bottom - (value / y.to) * (bottom - TOP);
  const id = `chart-${host.id}`;
  const root = svg(
    "svg",
    {
      viewBox: `0 0 ${width} ${height}`,
      width,
      height,
      role: "img",
      "aria-labelledby": `${id}-title ${id}-told`,
    },
    svg("title", { id: `${id}-title` }, title),
    svg("desc", { id: `${id}-told` }, told),
  );
  for (const value of y.ticks) {
    const at = scaleY(value);
    root.append(svg("line", { class: value ? "grid" : "axis", x1: LEFT, x2: right, y1: at, y2: at }));
    root.append(svg("text", { class: "tick", x: LEFT - 6, y: at + 4, "text-anchor": "end" }, y.word(value)));
  }
  for (const [value, word, anchor = "middle"] of x.ticks) {
    const at = scaleX(value);
    if (!x.bare)
      root.append(svg("line", { class: "axis", x1: at, x2: at, y1: bottom + lanes, y2: bottom + lanes + 4 }));
    root.append(svg("text", { class: "tick", x: at, y: bottom + lanes + 16, "text-anchor": anchor }, word));
  }
  const middle = (LEFT + right) / 2;
  root.append(svg("text", { class: "label", x: middle, y: height - 3, "text-anchor": "middle" }, x.label));
  host.replaceChildren(root);
  return { root, scaleX, scaleY, bottom, right };
}

/** A line through points [x, y]; it breaks where y is unknown. */
function path(points, scaleX, scaleY) {
  let down = false;
  return points
    .map(([x, y]) => {
      if (!known(y)) {
        down = false;
        return "";
      }
      const step = `${down ? "L" : "M"}${scaleX(x).toFixed(1)} ${scaleY(y).toFixed(1)}${down ? "" : "h0"}`;
      down = true;
      return step;
    })
    .join("");
}

function whole(count, width) {
  const step = Math.max(1, Math.ceil(count / Math.max(2, Math.floor(width / 26))));
  return Array.from({ length: count }, (_, place) => place).filter((place) => place % step === 0);
}

export function nothing(host, words) {
  host.replaceChildren(
    Object.assign(document.createElement("p"), { className: "aside", textContent: words }),
  );
}

/** Means of `samples` over spans of so many seconds that about `count` are left. */
export function thinned(samples, seconds) {
  const spans = new Map();
  for (const sample of samples) {
    const place = Math.floor(sample.at / seconds);
    if (!spans.has(place)) spans.set(place, []);
    spans.get(place).push(sample);
  }
  return [...spans].map(([place, members]) => {
    const mean = (name) => {
      const values = members.map((one) => one[name]).filter(known);
      return values.length ? values.reduce((a, b) => a + b) / values.length : null;
    };
    const last = members.at(-1);
    return {
      at: (place + 0.5) * seconds,
      rate: mean("rate"),
      plain: mean("plain"),
      busy: mean("busy"),
      acceptance: last.acceptance,
      state: last.state,
    };
  });
}

/** Tokens/s against plain decoding, with lanes for states and for what happened. */
export function speed(host, samples, happened, now) {
  const since = Math.min(now - 300, Math.max(now - 3600, samples[0]?.at ?? now));
  const seconds = Math.max(2, (now - since) / 240);
  const points = thinned(
    samples.filter((one) => one.at >= since),
    seconds,
  );
  const top = Math.max(1, ...points.flatMap((one) => [one.rate, one.plain]).filter(known));
  const minutes = [1, 2, 5, 10, 15].find((step) => (now - since) / 60 / step <= 6) ?? 15;
  const back = Array.from({ length: 7 }, (_, place) => place * minutes).filter(
    (ago) => ago * 60 <= now - since + 30,
  );
  const last = points.findLast((one) => known(one.rate));
  const told = last
    ? `Last ${number(last.rate, 1, "tokens/s")} a request at ${clock(last.at)}, ${number(last.plain, 1, "tokens/s")} predicted of plain decoding; ${happened.length} marks for decisions and events.`
    : "No tokens were generated in this time.";
  const drawn = frame(host, {
    title: "Tokens per second of a request over time, against plain decoding as predicted",
    told,
    height: 250,
    lanes: 34,
    x: {
      from: since,
      to: now,
      label: "minutes ago",
      ticks: back.map((ago) => [now - 60 * ago, ago ? `${ago}` : "now", ago ? "middle" : "end"]),
    },
    y: { to: ticks(top, 4).at(-1), ticks: ticks(top, 4), word: (value) => number(value, top < 4 ? 1 : 0) },
  });
  const { root, scaleX, scaleY, bottom } = drawn;
  if (!last)
    root.append(
      svg(
        "text",
        { class: "label", x: scaleX((since + now) / 2), y: scaleY(0) - 24, "text-anchor": "middle" },
        "no tokens in this time",
      ),
    );
  for (const name of ["plain", "rate"]) {
    // A gap of several spans is a time of which nothing is known.
    const line = points.flatMap((one, place) =>
      place && one.at - points[place - 1].at > 4 * seconds
        ? [
            [one.at, null],
            [one.at, one[name]],
          ]
        : [[one.at, one[name]]],
    );
    root.append(svg("path", { class: `line ${name}`, d: path(line, scaleX, scaleY) }));
  }
  for (let place = 0; place < points.length;) {
    let end = place;
    while (end + 1 < points.length && points[end + 1].state === points[place].state) end += 1;
    const [left, right] = [
      scaleX(Math.max(since, points[place].at - seconds / 2)),
      scaleX(Math.min(now, points[end].at + seconds / 2)),
    ];
    root.append(
      svg(
        "rect",
        {
          class: `state ${kind(points[place].state)}`,
          x: left,
          y: bottom + 24,
          width: Math.max(2, right - left),
          height: 6,
        },
        svg("title", {}, points[place].state),
      ),
    );
    place = end + 1;
  }
  for (const one of happened.filter((each) => each.at >= since && each.at <= now)) {
    const at = scaleX(one.at);
    root.append(svg("line", { class: "happened", x1: at, x2: at, y1: TOP, y2: bottom + 8 }));
    const shape =
      one.level === "info" ? `M${at} ${bottom + 9}l5 5-5 5-5-5z` : `M${at} ${bottom + 8}l6 11h-12z`;
    root.append(
      svg("path", { class: `mark ${one.level}`, d: shape }, svg("title", {}, `${clock(one.at)} ${one.text}`)),
    );
  }
}

export function kind(state) {
  if (state === "ready") return "good";
  if (state === "failed" || state === "backing off") return "bad";
  return state === "stopped" || state === "asleep" ? "rest" : "busy";
}

const share = { to: 1, ticks: [0, 0.25, 0.5, 0.75, 1], word: (value) => percent(value) };

/** Bars of a share for positions 1, 2, … */
export function accepted(host, shares) {
  const x = positions(host, shares.length);
  const told = shares.map((value, place) => `position ${place + 1}: ${percent(value)}`).join(", ");
  const { root, scaleX, scaleY, bottom } = frame(host, {
    title: "Share of drafts whose token at each position was accepted",
    told,
    x,
    y: share,
  });
  const room = scaleX(1) - scaleX(0);
  const width = Math.min(24, Math.max(2, room - 2));
  shares.forEach((value, place) => {
    if (!known(value)) return;
    const [left, top] = [scaleX(place + 1) - width / 2, scaleY(Math.min(1, value))];
    const round = Math.min(4, width / 2, bottom - top);
    const d = `M${left} ${bottom}V${top + round}q0 ${-round} ${round} ${-round}h${width - 2 * round}q${round} 0 ${round} ${round}V${bottom}z`;
    root.append(
      svg("path", { class: "bar", d }, svg("title", {}, `position ${place + 1}: ${percent(value)}`)),
    );
  });
}

/** A step for the chance that is needed at each position; none where a draft always ends. */
export function thresholds(host, values) {
  const x = positions(host, values.length);
  const told = values
    .map((value, place) => `position ${place + 1}: ${known(value) ? number(value, 2) : "never"}`)
    .join(", ");
  const { root, scaleX, scaleY } = frame(host, {
    title: "Chance of acceptance that the rule needs to draft at each position",
    told,
    x,
    y: share,
  });
  const half = (scaleX(1) - scaleX(0)) / 2;
  const line = values.flatMap((value, place) => [
    [place + 0.5, value],
    [place + 1.5, value],
  ]);
  root.append(svg("path", { class: "line needed", d: path(line, scaleX, scaleY) }));
  values.forEach((value, place) => {
    const words = `position ${place + 1}: ${known(value) ? `needs ${percent(value)}` : "never drafted"}`;
    const [cx, cy] = [scaleX(place + 1), scaleY(known(value) ? Math.min(1, value) : 1)];
    const dot = known(value)
      ? svg("circle", { class: "dot needed", cx, cy, r: Math.min(4, half) })
      : svg("path", { class: "line never", d: `M${cx - 3} ${cy - 3}l6 6m0-6l-6 6` });
    dot.append(svg("title", {}, words));
    root.append(dot);
  });
}

/** Milliseconds of a round by tokens drafted, with their spread, and where rounds are now. */
export function costs(host, { round_ms: rounds, spread_ms: spread, plain_ms: plain }, point) {
  const high = rounds.map((value, place) => value + (spread[place] ?? 0));
  const top = Math.max(plain, ...high);
  const y = ticks(top, 4);
  const told = `From ${number(rounds[0], 0, "ms")} with none to ${number(rounds.at(-1), 0, "ms")} with ${rounds.length - 1} drafted; rounds are now at ${point}: ${number(rounds[point], 0, "ms")}. Plain decoding takes ${number(plain, 0, "ms")}.`;
  const { root, scaleX, scaleY, right } = frame(host, {
    title: "Milliseconds of a round by tokens drafted in it",
    told,
    x: {
      from: 0,
      to: Math.max(1, rounds.length - 1),
      label: "tokens drafted",
      ticks: whole(rounds.length, host.clientWidth - LEFT).map((value) => [value, `${value}`]),
    },
    y: { to: y.at(-1), ticks: y, word: (value) => number(value, y[1] < 1 ? 1 : 0, "ms") },
  });
  const low = rounds.map((value, place) => [place, Math.max(0, value - (spread[place] ?? 0))]);
  const band =
    path([...high.map((value, place) => [place, value])], scaleX, scaleY) +
    path(low.reverse(), scaleX, scaleY).replace("M", "L").replace("h0", "");
  root.append(svg("path", { class: "band", d: `${band}z` }));
  root.append(
    svg("line", { class: "line plain", x1: LEFT, x2: right, y1: scaleY(plain), y2: scaleY(plain) }),
  );
  root.append(
    svg("path", {
      class: "line cost",
      d: path(
        rounds.map((value, place) => [place, value]),
        scaleX,
        scaleY,
      ),
    }),
  );
  root.append(
    svg(
      "circle",
      { class: "point", cx: scaleX(point), cy: scaleY(rounds[point]), r: 6 },
      svg("title", {}, `now: ${point} drafted, ${number(rounds[point], 0, "ms")}`),
    ),
  );
}

function positions(host, count) {
  const shown = whole(count, host.clientWidth - LEFT).map((place) => [place + 1, `${place + 1}`]);
  return { from: 0.5, to: count + 0.5, label: "position in the draft", ticks: shown, bare: true };
}
