"""What the fake llama-server counts and how it decodes (see fake_server)."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

Json = dict[str, Any]
WORDS = ("the", "quick", "brown", "fox", "jumps", "over", "the", "lazy", "dog")


class Options:
    """The flags that matter here; every other one is let pass, as are its values."""

    def __init__(self, argv: list[str]) -> None:
        def value(*names: str, default: str = "") -> str:
            at = [i for i, word in enumerate(argv[:-1]) if word in names]
            return argv[at[-1] + 1] if at else default

        self.argv = argv
        self.host = value("--host", default="127.0.0.1")
        self.port = int(value("--port", default="8080"))
        self.slots = max(1, int(value("-np", "--parallel", default="1")))
        self.context = int(value("-c", "--ctx-size", default="4096"))
        self.model = value("-m", "--model")
        self.types = [t for t in value("--spec-type").split(",") if t not in ("", "none")]
        self.n_max = int(value("--spec-draft-n-max", default="3"))
        self.metrics = "--metrics" in argv
        self.slot_folder = value("--slot-save-path")
        keys = value("--api-key-file")
        self.keys = Path(keys).read_text().split() if keys else []


class Tally:
    """What one request did, or all that ended."""

    def __init__(self, survival: list[float]) -> None:
        self.prompt = self.predicted = self.drafted = self.drafts = 0
        self.seconds = 0.0
        self.accepted = [0] * len(survival)

    def add(self, other: Tally) -> None:
        for name in ("prompt", "predicted", "drafted", "drafts", "seconds"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.accepted = [a + b for a, b in zip(self.accepted, other.accepted, strict=True)]


class State:
    """Counters as the engine has them: they move when a request ends."""

    def __init__(self, options: Options, script: Json) -> None:
        self.options = options
        self.script = script
        self.lock = threading.Lock()
        self.ready = False
        self.leaving = False
        self.requests = 0
        self.busy: set[int] = set()
        self.tasks: dict[int, int] = {}
        self.queue = threading.Lock()
        self.progress = dict.fromkeys(range(options.slots), 0)
        self.slot_free = threading.Semaphore(options.slots)
        self.speculative = bool(options.types) and script.get("speculation") != "off"
        self.survival = script.get("survival", [0.8, 0.6, 0.5, 0.4])[: options.n_max]
        self.random = random.Random(1)
        self.zero()

    def zero(self) -> None:
        self.total = Tally(self.survival)

    def take_slot(self) -> int:
        self.slot_free.acquire()
        with self.lock:
            self.requests += 1
            slot = min(set(range(self.options.slots)) - self.busy)
            self.busy.add(slot)
            self.tasks[slot] = self.requests
            self.progress[slot] = 0
            return slot

    def give_slot(self, slot: int) -> None:
        with self.lock:
            self.busy.discard(slot)
        self.slot_free.release()

    def pass_queue(self) -> None:
        """Wait as everything does that goes through the engine's queue of tasks."""
        if self.requests > self.script.get("wedge_after", self.requests):
            time.sleep(3600)
        with self.queue:
            pass

    def prefill(self, slot: int) -> None:
        left = self.script.get("prefill_seconds", 0.0)
        batch = self.script.get("batch_seconds", left)
        while left > 0:
            with self.queue:
                until = time.monotonic() + min(batch, left)
                while time.monotonic() < until:
                    sum(range(20_000))
                    time.sleep(0.005)
            left -= batch
            self.progress[slot] += 1
            time.sleep(0.01)

    def decode(self, wanted: int, seen: Tally) -> Iterator[str]:
        """Yield `wanted` words, round by round, and book them in `seen`."""
        while seen.predicted < wanted:
            started = time.monotonic()
            time.sleep(self.script.get("token_ms", 1) / 1000)
            kept = 0
            if self.speculative and seen.predicted:
                drafted = min(len(self.survival), wanted - seen.predicted - 1)
                luck = self.random.random()
                kept = sum(luck < s for s in self.survival[:drafted])
                seen.drafted += drafted
                seen.drafts += drafted > 0
            seen.seconds += time.monotonic() - started
            for position in range(kept):
                seen.accepted[position] += 1
            for _ in range(kept + 1):
                word = WORDS[seen.predicted % len(WORDS)]
                seen.predicted += 1
                yield f" {word}"

    def count(self, prompt: int, seen: Tally) -> Json:
        """Book a request that ended and return its `timings`."""
        seen.prompt = prompt
        with self.lock:
            self.total.add(seen)
        timings = {
            "prompt_n": prompt,
            "prompt_ms": float(prompt),
            "predicted_n": seen.predicted,
            "predicted_ms": seen.seconds * 1000,
            "predicted_per_second": seen.predicted / seen.seconds,
        }
        if "cached" in self.script:
            timings["cache_n"] = self.script["cached"]
        if self.speculative:
            timings |= {"draft_n": seen.drafted, "draft_n_accepted": sum(seen.accepted)}
        return timings

    def pages(self) -> dict[str, object]:
        context = self.options.context // self.options.slots
        return {
            "health": {"status": "ok"},
            "models": {"object": "list", "data": [{"id": self.options.model}]},
            "props": {
                "total_slots": self.options.slots,
                "model_path": self.options.model,
                "default_generation_settings": {"n_ctx": context},
            },
            "slots": [
                {
                    "id": slot,
                    "n_ctx": context,
                    "speculative": self.speculative,
                    "is_processing": slot in self.busy,
                    "id_task": self.tasks.get(slot, -1),
                    "n_prompt_tokens_processed": 0,
                    "next_token": [{"n_decoded": self.progress[slot]}],
                }
                for slot in range(self.options.slots)
            ],
        }

    def metrics(self) -> str:
        counters = {
            "prompt_tokens_total": self.total.prompt,
            "tokens_predicted_total": self.total.predicted,
            "tokens_predicted_seconds_total": round(self.total.seconds, 6),
        }
        positions = ""
        if self.speculative:
            counters["spec_decode_num_draft_tokens_total"] = self.total.drafted
            counters["spec_decode_num_accepted_tokens_total"] = sum(self.total.accepted)
            counters["spec_decode_num_drafts_total"] = self.total.drafts
            series = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total"
            positions = "".join(
                f'{series}{{position="{i}"}} {n}\n' for i, n in enumerate(self.total.accepted)
            )
        text = "".join(
            f"# TYPE llamacpp:{name} counter\nllamacpp:{name} {value}\n"
            for name, value in counters.items()
        )
        return f"{text}llamacpp:requests_processing {len(self.busy)}\n{positions}"
