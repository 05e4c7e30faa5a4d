"""Clients of several kinds, and what became of each request."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import aiohttp

from autospec.daemon.front.relay import MOST_DEATHS

WITHIN = aiohttp.ClientTimeout(total=300)
TOPICS = ("rivers", "sorting a list", "bread", "prime numbers", "a lighthouse", "the moon", "TCP")


@dataclass
class Seen:
    """`outcomes` by (kind, outcome); `lost` are requests that should have been answered whole."""

    outcomes: Counter[tuple[str, str]] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    deaths: int = 0
    """Of children, so far."""

    def count(self, kind: str, outcome: str) -> None:
        self.outcomes[kind, outcome] += 1

    def lose(self, kind: str, why: str) -> None:
        self.count(kind, "lost")
        self.lost.append(f"{kind}: {why}")


class Client:
    """Sends one request after the other to `base`, all distinct."""

    def __init__(self, base: str, session: aiohttp.ClientSession, seen: Seen, seed: int) -> None:
        self._base = base
        self._session = session
        self._seen = seen
        self._random = random.Random(seed)
        self._number = 0
        self._kinds: Mapping[str, tuple[int, Callable[[str], Awaitable[None]]]] = {
            "answer": (8, self._answer),
            "stream": (8, self._stream),
            "long prompt": (2, self._long),
            "client that leaves": (3, self._leave),
            "slow reader": (1, self._slow),
            "malformed": (3, self._malformed),
            "page": (2, self._page),
        }

    async def run(self) -> None:
        kinds, weights = list(self._kinds), [weight for weight, _ in self._kinds.values()]
        while True:
            kind = self._random.choices(kinds, weights)[0]
            try:
                await self._kinds[kind][1](kind)
            except (aiohttp.ClientError, TimeoutError, OSError) as error:
                self._seen.lose(kind, f"{type(error).__name__}: {error}")
            await asyncio.sleep(self._random.uniform(0, 0.5))

    def _body(self, *, words: int = 0, **more: object) -> dict[str, object]:
        self._number += 1
        topic = self._random.choice(TOPICS)
        nonce = self._random.getrandbits(48)
        filler = " ".join(self._random.choice(TOPICS) for _ in range(words))
        content = f"Note {nonce:x}-{self._number}. {filler} Tell me about {topic}."
        tokens = self._random.randint(4, 48)
        messages = [{"role": "user", "content": content}]
        return {"model": "chat", "messages": messages, "max_tokens": tokens, **more}

    def _post(self, body: object) -> aiohttp.client._RequestContextManager:
        return self._session.post(f"{self._base}/v1/chat/completions", json=body, timeout=WITHIN)

    async def _answer(self, kind: str, words: int = 0) -> None:
        before = self._seen.deaths
        async with self._post(self._body(words=words)) as answer:
            self._judge(kind, before, answer.status, await answer.text())

    def _judge(self, kind: str, before: int, status: int, text: str) -> None:
        """A request over which more children died than one may is taken for the cause, rightly."""
        if status == 200 and json.loads(text).get("choices"):
            self._seen.count(kind, "whole")
        elif status == 502 and self._seen.deaths - before > MOST_DEATHS:
            self._seen.count(kind, f"given up after {MOST_DEATHS + 1} deaths, and told")
        else:
            self._seen.lose(kind, f"{status} {text[:200]}")

    async def _long(self, kind: str) -> None:
        await self._answer(kind, words=self._random.randint(100, 200))

    async def _stream(self, kind: str, pause: float = 0.0) -> None:
        """Begun and broken by a death: to be told in an event. Anything else is whole."""
        before = self._seen.deaths
        async with self._post(self._body(stream=True)) as answer:
            if answer.status != 200:
                self._judge(kind, before, answer.status, await answer.text())
                return
            last = b""
            async for line in answer.content:
                last = line.strip() or last
                if pause:
                    await asyncio.sleep(pause)
        if last == b"data: [DONE]":
            self._seen.count(kind, "whole")
        elif b'"upstream_failed"' in last:
            self._seen.count(kind, "broken off, and told")
        else:
            self._seen.lose(kind, f"ended with {last[:200]!r}")

    async def _slow(self, kind: str) -> None:
        await self._stream(kind, pause=0.1)

    async def _leave(self, kind: str) -> None:
        async with self._post(self._body(stream=True)) as answer:
            await answer.content.readany()
        self._seen.count(kind, "left")

    async def _malformed(self, kind: str) -> None:
        junk = self._random.choice([b"{", b"[]", b"\xff" * 3000, b"[" * 300, b""])
        url = f"{self._base}/v1/chat/completions"
        async with self._session.post(url, data=junk, timeout=WITHIN) as answer:
            await answer.read()
            if answer.status < 400:
                self._seen.lose(kind, f"taken for sound: {answer.status}")
            else:
                self._seen.count(kind, "refused")

    async def _page(self, kind: str) -> None:
        path = self._random.choice(["/health", "/v1/models", "/metrics"])
        async with self._session.get(self._base + path, timeout=WITHIN) as answer:
            await answer.read()
            # /health may say that the model is loading.
            if answer.status == 200 or (path == "/health" and answer.status == 503):
                self._seen.count(kind, "told")
            else:
                self._seen.lose(kind, f"{path}: {answer.status}")
