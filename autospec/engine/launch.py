"""What a server is asked to be, independent of the engine's generation of flags."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Launch:
    """One model as one `llama-server` serves it.

    Exactly one of `model` and `hf` is set; of `draft` and `draft_hf` at most one.
    `context` is in tokens for all slots together, 0 means the model's own.
    `rpc` are other machines' `ggml-rpc-server`s (HOST:PORT), whose devices are used as well.
    `extra` are the user's own arguments, already checked (`arguments.refuse_extra`).
    """

    name: str
    model: Path | None = None
    hf: str | None = None
    draft: Path | None = None
    draft_hf: str | None = None
    context: int = 0
    slots: int = 1
    rpc: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    @property
    def has_draft(self) -> bool:
        return self.draft is not None or self.draft_hf is not None


@dataclass(frozen=True)
class Speculation:
    """A setting of the engine's own speculation flags.

    `types` are names as `--spec-type` takes them; empty means plain decoding, and then the
    draft model is not loaded either.
    """

    types: tuple[str, ...] = ()
    n_max: int = 0
    n_min: int = 0
    p_min: float = 0.0

    @property
    def on(self) -> bool:
        return bool(self.types)


PLAIN = Speculation()


@dataclass(frozen=True)
class Endpoint:
    """Where a child listens: loopback `host`:`port`, or `socket` (a UNIX socket's path)."""

    host: str = "127.0.0.1"
    port: int = 0
    socket: Path | None = None
    api_key_file: Path | None = field(default=None, repr=False)
