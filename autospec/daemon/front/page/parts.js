// The parts of the page, each drawn from the daemon's documents.

import * as charts from "./charts.js";
import { DASH, clock, h, known, number, pairs, percent, span, table, times } from "./words.js";

const part = (id) => document.getElementById(id);
const drawn = new Map();

/** Draw only what has changed: what is selected, scrolled or unfolded stays so. */
function once(id, data, draw) {
  const text = JSON.stringify(data);
  if (drawn.get(id) === text) return;
  drawn.set(id, text);
  part(id).replaceChildren(...draw());
}

export function daemon(status) {
  const { version, for_seconds: seconds, engine, starting } = status;
  const words = `${version}, up ${span(seconds)}; engine ${engine.version}, ${engine.applier.name}`;
  part("daemon").textContent = starting
    ? `${words}; measuring ${starting.model}: ${starting.what}, ${percent(starting.share)}, ${span(starting.left)} left`
    : words;
}

export function model(one) {
  const { live, setting } = one;
  document.title = `${one.name}: ${one.state} · autospec`;
  once("name", one.name, () => [one.name]);
  const why = one.fault ?? one.reason;
  once("state", [one.state, why, one.deaths], () => [
    h("strong", { class: `pill ${charts.kind(one.state)}` }, one.state),
    why ? ` ${why}` : "",
    one.deaths ? ` (deaths lately: ${one.deaths})` : "",
  ]);
  const gain = known(live.gain_measured) ? live.gain_measured : live.gain_predicted;
  const gained = known(live.gain_measured)
    ? `measured; ${times(live.gain_predicted)} predicted`
    : known(gain)
      ? "predicted"
      : setting.type === "off"
        ? "it is plain decoding"
        : "";
  once("figures", [one.live, one.for_seconds], () =>
    pairs([
      [
        "Speed of a request",
        number(live.rate, 1, "tokens/s"),
        known(live.rate)
          ? "in the last minute"
          : live.tokens
            ? "no tokens in the last minute"
            : "no tokens yet",
      ],
      ["Over plain decoding", times(gain), gained],
      [
        "Accepted",
        percent(live.acceptance),
        live.drafted ? `of ${number(live.drafted, 0)} drafted tokens` : "nothing drafted yet",
      ],
      [
        "Slots busy",
        `${live.busy} of ${live.slots}`,
        known(live.depth) ? `context depth ${number(live.depth, 0, "tokens")}` : "",
      ],
      [
        "In this state",
        span(one.for_seconds),
        one.restarts_for_tuning ? `restarts for tuning: ${one.restarts_for_tuning}` : "",
      ],
    ]),
  );
}

export function speed(samples, happened, now) {
  charts.speed(part("speed"), samples, happened, now);
  if (!part("speed-table").closest("details").open) return;
  const rows = charts
    .thinned(samples, 300)
    .reverse()
    .map((one) => [
      clock(one.at - 150, now),
      number(one.rate),
      number(one.plain),
      percent(one.acceptance),
      number(one.busy),
      one.state,
    ]);
  once("speed-table", rows, () => [
    table(
      "Means over five minutes",
      ["from", "tokens/s of a request", "plain, predicted", "accepted", "slots busy", "state at the end"],
      rows,
    ),
  ]);
}

export function drafts({ live, setting, costs }) {
  const shares = live.by_position.map((one) => one.share);
  if (shares.some(known)) charts.accepted(part("accepted"), shares);
  else charts.nothing(part("accepted"), "Nothing drafted yet.");
  rows(
    "accepted-table",
    ["position", "accepted"],
    shares.map((share, place) => [`${place + 1}`, percent(share, 1)]),
  );

  const needed = setting.thresholds ?? [];
  const carried = setting.live ? "In force inside the engine." : "Flags approach it with n_max and p_min.";
  part("carried").textContent = needed.length
    ? `A draft ends before a token less likely than this. ${carried}`
    : "";
  if (needed.length) charts.thresholds(part("thresholds"), needed);
  else charts.nothing(part("thresholds"), "No thresholds: nothing to choose, or nothing measured.");
  rows(
    "thresholds-table",
    ["position", "needed"],
    needed.map((value, place) => [`${place + 1}`, known(value) ? percent(value, 1) : "never"]),
  );

  if (costs === null) {
    part("operating").textContent = "";
    charts.nothing(part("costs"), "Not measured.");
    rows("costs-table", [], []);
    return;
  }
  const drafted = live.rounds ? live.drafted / live.rounds : setting.n_max;
  const point = Math.min(costs.round_ms.length - 1, Math.max(0, Math.round(drafted)));
  part("operating").textContent =
    `${number(costs.round_ms[point], 0, "ms")} with ${point} drafted is where rounds are now (●); plain decoding takes ${number(costs.plain_ms, 0, "ms")} a token (dashed).${costs.extrapolated ? " Partly beyond what was measured." : ""}`;
  charts.costs(part("costs"), costs, point);
  rows(
    "costs-table",
    ["drafted", "round", "±"],
    costs.round_ms.map((value, place) => [
      `${place}`,
      number(value, 1, "ms"),
      number(costs.spread_ms[place], 1, "ms"),
    ]),
  );
}

function rows(id, heads, list) {
  part(id).closest("details").hidden = !list.length;
  once(id, list, () => (list.length ? [table(heads.join(", "), heads, list)] : []));
}

function withoutPins(free) {
  const numbers = ["n_max", "n_min", "p_min"].filter((name) => free[name]);
  const words = numbers.map((name) => `${name} ${number(free[name], name === "p_min" ? 2 : 0)}`);
  const chosen = free.type === "off" ? "plain decoding" : [free.type, ...words].join(" ");
  const rate = `${chosen}: ${number(free.predicted_rate, 1, "tokens/s")} predicted`;
  if (!known(free.loss)) return [rate, "what is pinned cannot be predicted"];
  const cost = `the pins ${free.loss > 0 ? "cost" : "gain"} ${percent(Math.abs(free.loss), 0)}`;
  return [rate, Math.abs(free.loss) < 0.005 ? "the pins cost nothing" : cost];
}

export function setting(one, explained) {
  const { setting: chosen, calibration } = one;
  const from = (name) => chosen.sources[name] ?? "";
  const applier = explained?.applier;
  const names = chosen.type === "off" ? [] : ["n_max", "n_min", "p_min"];
  const data = [
    chosen,
    one.decision,
    one.not_live,
    calibration,
    explained?.setting,
    applier,
    explained?.options,
  ];
  once("setting", data, () =>
    pairs([
      ["type", chosen.type === "off" ? "off (plain decoding)" : chosen.type, from("type")],
      ...names.map((name) => [name, number(chosen[name], name === "p_min" ? 2 : 0), from(name)]),
      ["why", chosen.why || DASH],
      chosen.unpinned ? ["without pins", ...withoutPins(chosen.unpinned)] : null,
      ["predicted", predicted(chosen), known(chosen.predicted_rate) ? "all busy slots together" : ""],
      one.decision ? ["last thought", `${one.decision.action}: ${one.decision.reason}`] : null,
      applier
        ? [
            "put in force by",
            `${applier.name}: ${applier.why}`,
            known(applier.loss) && applier.loss > 0
              ? `costs ${percent(applier.loss, 1)} against thresholds in the engine, predicted`
              : "",
          ]
        : null,
      one.not_live ? ["not live", one.not_live] : null,
      explained && !explained.weighed ? ["not weighed", explained.why_not] : null,
      [
        "calibration",
        calibration ? `took ${span(calibration.seconds)}, depths ${calibration.depths.join(", ")}` : DASH,
        calibration?.unsure ? "unsure: something disturbed it" : "",
      ],
    ]),
  );
  const options = [...(explained?.options ?? [])].sort((a, b) => b.rate - a.rate);
  once("options", options, () =>
    options.length
      ? [
          table(
            "What could be in force, all busy slots together",
            ["setting", "tokens/s", "worse to better", "known by", "comes"],
            options.map((option) => [
              option.name,
              number(option.rate),
              `${number(option.worse)} to ${number(option.better)}`,
              option.measured ? "measured" : "predicted",
              HOW[option.how] ?? option.how,
            ]),
          ),
        ]
      : [],
  );
}

function predicted({ predicted_rate: rate, predicted_plain_rate: plain, unsure }) {
  if (!known(rate)) return DASH;
  return `${number(rate, 1, "tokens/s")} against ${number(plain, 1, "tokens/s")} plain${unsure ? " (unsure)" : ""}`;
}

const HOW = { live: "without a restart", restart: "by a restart" };

export function decisions(list, now) {
  once("decisions", list, () =>
    list.length
      ? list.map((one) => entry(one.at, now, "info", one.action, one.reason, sums(one.arithmetic)))
      : [h("li", {}, "None yet.")],
  );
}

function sums(arithmetic) {
  if (!arithmetic) return "";
  const {
    gain_rate: rate,
    expected_seconds: seconds,
    gain_tokens: gain,
    price_seconds: lost,
    price_tokens: price,
    pays,
  } = arithmetic;
  return `${number(rate, 1, "tokens/s")} more for ${span(seconds)} are ${number(gain, 0, "tokens")}; a restart takes ${number(lost, 1, "s")}, ${number(price, 0, "tokens")}: it ${pays ? "pays" : "does not pay"}.`;
}

export function events(list, now) {
  once("events", list, () =>
    list.length
      ? list.map((one) => entry(one.at, now, one.level, one.level === "info" ? "" : one.level, one.text, ""))
      : [h("li", {}, "None yet.")],
  );
}

function entry(at, now, level, head, text, more) {
  return h(
    "li",
    { class: level },
    h("time", { datetime: new Date(1000 * at).toISOString() }, clock(at, now)),
    h("p", {}, head ? h("strong", {}, `${head}: `) : null, text, more ? h("small", {}, more) : null),
  );
}
