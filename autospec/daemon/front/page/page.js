// Asks the daemon every two seconds while the page is seen, and has it drawn.

import * as parts from "./parts.js";
import { clock, h } from "./words.js";

const EVERY = 2000;
const PATIENCE = 8000;
const HOUR = 3600;
const EXPLAINED = 30;
const GAP = 10;
const MOST_EVENTS = 100;
const STORED = "autospec-key";

const part = (id) => document.getElementById(id);
const state = {
  status: null,
  samples: [],
  samplesOf: null,
  explained: null,
  explainedAs: null,
  events: [],
  heard: null,
  timer: null,
  asking: false,
};

class KeyNeeded extends Error {}

async function ask(page, model) {
  const key = sessionStorage.getItem(STORED);
  const query = model === undefined ? "" : `?model=${encodeURIComponent(model)}`;
  const answer = await fetch(page + query, {
    headers: key ? { Authorization: `Bearer ${key}` } : {},
    cache: "no-store",
    credentials: "same-origin",
    signal: AbortSignal.timeout(PATIENCE),
  });
  if (answer.status === 401) throw new KeyNeeded();
  if (!answer.ok) throw new Error(`answered with status ${answer.status}`);
  return answer.json();
}

const chosen = () => {
  const models = state.status.models;
  const wanted = location.hash.slice(1);
  return models.find((one) => encodeURIComponent(one.name) === wanted) ?? models[0];
};

async function turn() {
  if (state.asking || document.hidden) return;
  clearTimeout(state.timer);
  state.asking = true;
  let next = EVERY;
  try {
    state.status = await ask("status.json");
    state.heard = Date.now();
    const trouble = await follow().then(
      () => null,
      (error) => error,
    );
    if (trouble instanceof KeyNeeded) throw trouble;
    draw();
    silence(trouble);
  } catch (error) {
    if (error instanceof KeyNeeded) {
      next = null;
      askForKey();
    } else {
      silence(error);
    }
  } finally {
    state.asking = false;
    if (next !== null && !document.hidden) state.timer = setTimeout(turn, next);
  }
}

/** What else is needed for the model that is shown: rarely anything. */
async function follow() {
  const { at, models, events } = state.status;
  const known = new Set(state.events.map((one) => JSON.stringify(one)));
  state.events = [...state.events, ...events.filter((one) => !known.has(JSON.stringify(one)))].slice(
    -MOST_EVENTS,
  );
  if (!models.length) return;
  const one = chosen();
  if (state.samplesOf !== one.name || at - (state.samples.at(-1)?.at ?? 0) > GAP) {
    state.samples = (await ask("history.json", one.name)).samples[one.name] ?? [];
    state.samplesOf = one.name;
  }
  if (at > (state.samples.at(-1)?.at ?? 0)) state.samples.push(sampled(one, at));
  state.samples = state.samples.filter((sample) => sample.at > at - HOUR);
  const as = JSON.stringify([one.name, one.setting, one.decision, Math.floor(at / EXPLAINED)]);
  if (state.explainedAs !== as) {
    state.explained = (await ask("explain.json", one.name)).models[0] ?? null;
    state.explainedAs = as;
  }
}

function sampled({ state: phase, live, setting }, at) {
  const plain = setting.predicted_plain_rate;
  return {
    at,
    state: phase,
    busy: live.busy,
    depth: live.depth,
    rate: live.rate,
    plain: plain === null ? null : plain / setting.basis.busy,
    acceptance: live.acceptance,
  };
}

function draw() {
  const { status, samples, explained, events } = state;
  const now = status.at;
  part("door").hidden = true;
  parts.daemon(status);
  choices(status.models);
  const none = !status.models.length;
  part("waiting").hidden = !none;
  part("shown").hidden = none;
  if (none) {
    part("waiting").textContent = "No model is served yet.";
    return;
  }
  const one = chosen();
  const decided = explained?.decisions ?? [];
  const told = events.filter((event) => event.model === one.name || event.model === null);
  const marks = [
    ...decided.map((decision) => ({
      at: decision.at,
      level: "info",
      text: `${decision.action}: ${decision.reason}`,
    })),
    ...told.filter((event) => event.level !== "info"),
  ];
  parts.model(one);
  parts.speed(samples, marks, now);
  parts.drafts(one);
  parts.setting(one, explained);
  parts.decisions(decided, now);
  parts.events([...told].reverse(), now);
}

function choices(models) {
  const select = part("model");
  const text = (one) => `${one.name} (${one.state})`;
  const wanted = models.map((one) => [one.name, text(one)]);
  const present = [...select.options].map((option) => [option.value, option.textContent]);
  if (JSON.stringify(wanted) !== JSON.stringify(present)) {
    select.replaceChildren(...wanted.map(([value, words]) => h("option", { value }, words)));
  }
  part("choice").hidden = models.length < 2;
  if (models.length) select.value = chosen().name;
}

function silence(error) {
  const notice = part("silence");
  notice.hidden = error === null;
  document.body.classList.toggle("stale", error !== null);
  if (error === null) return;
  const since = state.heard === null ? "" : ` since ${clock(state.heard / 1000)}`;
  const last = state.heard === null ? "" : " What is shown is of then.";
  const words = `No answer from autospec${since} (${error.message}).${last} It is asked again every ${EVERY / 1000} s.`;
  // Told anew only when it changes: screen readers say it each time.
  if (notice.textContent !== words) notice.textContent = words;
}

function askForKey() {
  const shown = sessionStorage.getItem(STORED) !== null;
  sessionStorage.removeItem(STORED);
  part("refusal").textContent = shown ? "The server did not accept this key." : "";
  for (const id of ["shown", "waiting", "choice", "silence"]) part(id).hidden = true;
  part("daemon").textContent = "";
  part("door").hidden = false;
  part("key").value = "";
  part("key").focus();
}

part("door").addEventListener("submit", (event) => {
  event.preventDefault();
  const key = part("key").value.trim();
  if (!/^[\x21-\x7e]+$/.test(key)) {
    part("refusal").textContent = "A key has only letters, digits and signs of ASCII.";
    return;
  }
  sessionStorage.setItem(STORED, key);
  turn();
});

part("model").addEventListener("change", (event) => {
  location.hash = encodeURIComponent(event.target.value);
});
window.addEventListener("hashchange", () => {
  if (state.status !== null) turn();
});
document.addEventListener("visibilitychange", () => {
  clearTimeout(state.timer);
  if (part("door").hidden) turn();
});
const redraw = () => {
  if (!part("shown").hidden) draw();
};
document.addEventListener("toggle", redraw, true);
new ResizeObserver(redraw).observe(document.querySelector("main"));
turn();
