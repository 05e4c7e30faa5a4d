"""The live applier: launches a child with the library, proves that it works, steers it.

obstacle(engine, launch, types)    why it cannot be tried at all, None when it can
session = LiveSession.open()       the library and the two memory files
session.environment(env)           for the child, with `session.descriptors` passed to it
live_speculation(wanted)           the flags the child is launched with
await handshake(session, server)   why it does not work after all, None when it does
session.put(policy)                from the next round on, without a restart
session.beat()                     every few seconds; see SILENCE_SECONDS
session.rounds()                   what was drafted and accepted since the last call
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Self

import httpx

from autospec.engine.identity import engine_files, mentions
from autospec.engine.live import build
from autospec.engine.live.memory import (
    POSITIONS,
    SLOTS,
    PolicyFile,
    Reason,
    RingFile,
    State,
    Status,
)
from autospec.engine.live.policy import LivePolicy, at_most
from autospec.engine.live.telemetry import LiveRound, RoundReader
from autospec.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from autospec.engine.find import Engine
    from autospec.engine.launch import Launch, Speculation
    from autospec.engine.server import Server

P_MIN = 1e-6
"""The engine's own p_min under the library: no real candidate lies below it, a cut one does."""

PROVEN_TYPES = frozenset({"draft-simple"})
UNTESTED_TYPES = frozenset({"draft-mtp", "draft-eagle3"})
"""Their draft loops look the same in the engine's source; no model of theirs was run here, so the
library's checks and the handshake decide."""

FUNCTIONS = (
    "_Z24common_speculative_draftP18common_speculative",
    "_Z25common_speculative_acceptP18common_speculativeit",
    "_Z24common_speculative_beginP18common_speculativeiRKSt6vectorIiSaIiEE",
    "_Z35common_speculative_get_draft_paramsP18common_speculativei",
    "_Z29common_sampler_get_candidatesP14common_samplerb",
)
"""What the engine must export, in the order of the bits of `Status.detail` for MISSING_SYMBOL."""

HANDSHAKE_SECONDS = 120.0
"""Within which the probe of `handshake` is answered."""

_PROBE = "Count from one to twenty in words, then say which of the numbers you like best."
_PROBE_TOKENS = 32

_WHY: Mapping[Reason, str] = MappingProxyType(
    {
        Reason.NONE: "no reason given",
        Reason.MISSING_SYMBOL: "this build does not export the functions it stands before",
        Reason.BAD_HEADER: "the shared memory is damaged",
        Reason.BAD_POLICY: "it was given a policy that makes no sense",
        Reason.STRANGE_PARAMS: "this build lays out a draft's parameters in another way",
        Reason.STRANGE_CANDIDATES: "this build lays out a draft's candidates in another way",
        Reason.STRANGE_SAMPLER: "candidates came from a slot that it cannot tell",
        Reason.OUT_OF_STEP: "the engine drafted other tokens than it was seen to consider",
        Reason.CUT_IGNORED: "the engine went on drafting where it was told to stop",
        Reason.TOO_MANY: f"more than {SLOTS} slots, or drafts of more than {POSITIONS} tokens",
        Reason.STRANGE_ACCEPTANCE: "more tokens were accepted than drafted",
    }
)


def obstacle(engine: Engine, launch: Launch, types: Sequence[str]) -> str | None:
    """Why the live policy cannot be tried for this build and launch; None when it can."""
    if sys.platform != "linux":
        return "the live policy needs Linux"
    if not engine.shared:
        return "this engine is linked statically: its functions cannot be hooked"
    if not set(types) & (PROVEN_TYPES | UNTESTED_TYPES):
        return f"the live policy does not steer {', '.join(types) or 'plain decoding'}"
    if launch.slots > SLOTS:
        return f"the live policy follows at most {SLOTS} slots"
    files = engine_files(engine.server)
    missing = [name for name in FUNCTIONS if not mentions(files, name.encode())]
    if missing:
        return f"{_WHY[Reason.MISSING_SYMBOL]}: {missing[0]}"
    return None


def live_speculation(wanted: Speculation) -> Speculation:
    """`wanted` with flags that leave every decision to the library.

    n_min is 0, as a draft cut below it would be thrown away after it was paid.
    """
    return replace(wanted, n_max=min(wanted.n_max, POSITIONS), n_min=0, p_min=P_MIN)


def explain(status: Status) -> str:
    """One sentence on what the library says of itself."""
    match status.state:
        case State.ABSENT:
            return (
                "the library was not loaded, or not given its memory: LD_PRELOAD is refused for "
                "file capabilities, folders mounted noexec and other architectures"
            )
        case State.WAITING:
            return "it is loaded and saw no draft of a draft model yet"
        case State.CHECKING:
            return "it is looking at the first drafts"
        case State.LIVE:
            return "it is live"
        case State.INERT:
            return f"it stands aside for good: {_WHY[status.reason]}"


@dataclass
class LiveSession:
    """One child's library and memory. It belongs to the owner of the child."""

    library: Path
    _policy: PolicyFile = field(repr=False)
    _ring: RingFile = field(repr=False)
    _reader: RoundReader = field(repr=False)
    _number: int = 0

    @classmethod
    def open(cls) -> Self:
        """Compile the library if needed and make the memory files.

        LiveUnavailable where that cannot be done here.
        """
        library = build.library()
        try:
            policy = PolicyFile()
        except OSError as error:
            raise build.LiveUnavailable(f"no sealed memory files: {error}") from error
        try:
            ring = RingFile()
        except OSError as error:
            policy.close()
            raise build.LiveUnavailable(f"no sealed memory files: {error}") from error
        return cls(library, policy, ring, RoundReader(ring))

    @property
    def descriptors(self) -> tuple[int, int]:
        """To be passed to the child under the same numbers (`pass_fds`)."""
        return self._policy.descriptor, self._ring.descriptor

    def environment(self, base: Mapping[str, str]) -> dict[str, str]:
        """`base` with the library preloaded before whatever the user preloads.

        The library takes itself out again, so that programs started by the child have none of it.
        """
        theirs = base.get("LD_PRELOAD", "")
        return {
            **base,
            "LD_PRELOAD": f"{self.library}:{theirs}" if theirs else str(self.library),
            "AUTOSPEC_LIVE": ",".join(map(str, self.descriptors)),
        }

    def put(self, policy: LivePolicy, *, in_force: bool = True) -> int:
        """Put `policy` in force (or only observe) from the next rounds on; returns its number."""
        self._number += 1
        self._policy.write(policy.record(self._number, in_force=in_force))
        return self._number

    def beat(self) -> None:
        self._policy.beat()

    def status(self) -> Status:
        return self._ring.status()

    def rounds(self) -> list[LiveRound]:
        """The rounds since the last call, oldest first."""
        return self._reader.take()

    def reader(self) -> RoundReader:
        """Another reader of the same rounds, for who only listens."""
        return RoundReader(self._ring)

    @property
    def lost(self) -> int:
        """Rounds that were overwritten before they were read, or unreadable."""
        return self._reader.lost + self._reader.unreadable

    @property
    def foreign(self) -> int:
        """Drafts that no draft model made."""
        return self._reader.foreign

    def close(self) -> None:
        self._policy.close()
        self._ring.close()


async def handshake(
    session: LiveSession, server: Server, *, n_max: int, within: float = HANDSHAKE_SECONDS
) -> str | None:
    """Let the server, just ready, answer a small request of ours under a probe policy.

    None when the library saw its drafts and its thresholds bite; else the sentence that says why
    the child must be launched again in scalar mode. Afterwards no policy is in force.
    """
    limit = min(1, n_max - 1)
    probe = at_most(limit, n_max)
    number = session.put(probe)
    session.rounds()
    try:
        await server.chat(_PROBE, tokens=_PROBE_TOKENS, within=within)
    except (httpx.HTTPError, EngineError) as error:
        return f"the server did not answer the probe: {error or type(error).__name__}"
    seen = [r for r in session.rounds() if r.policy == number and r.obeyed]
    session.put(probe, in_force=False)
    return verdict(session.status(), seen, limit)


def verdict(status: Status, obeyed: Sequence[LiveRound], limit: int) -> str | None:
    """What rounds under a policy of at most `limit` drafted tokens prove. None: it works."""
    if status.state is not State.LIVE:
        return explain(status)
    if any(r.round.drafted > limit for r in obeyed):
        return "its thresholds do not end drafts in this build"
    if not any(r.cut for r in obeyed):
        return "no draft of the probe came to a threshold"
    return None
