"""Why an engine process ended, and why a running one does not speculate, in its own words."""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from autospec.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ExitKind = Literal[
    "clean",
    "bad_flag",
    "missing_model",
    "bad_model",
    "download_failed",
    "vocabulary_mismatch",
    "missing_library",
    "illegal_instruction",
    "out_of_memory",
    "cannot_listen",
    "device_failed",
    "worker_lost",
    "worker_unfit",
    "assertion",
    "killed",
    "terminated",
    "crash",
    "wedged",
    "unable",
    "unknown",
]
"""`wedged` and `unable` no exit shows: it hung and was ended; it cannot do what was asked of it."""

_MAX_QUOTE = 300

_COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LOG_PREFIX = re.compile(r"^(?:[0-9.]+ )?[EWID] +(?=\S)")

_BAD_FLAG = re.compile(
    r"error: invalid argument: .*"
    r"|error while handling (?:argument|environment variable) .*"
    r"|error: unknown argument: .*"
    r"|expected value for argument.*"
)
_LIBRARY = re.compile(
    r"error while loading shared libraries: (?P<elf>[^:]+):.*"
    r"|Library not loaded: (?P<macho>\S+).*"
    r"|version `(?P<version>[^']+)' not found.*"
    r"|symbol lookup error: .*: undefined symbol: (?P<symbol>\S+).*"
)
_MEMORY = re.compile(
    r".*(?:out of memory|ErrorOutOf(?:Device|Host)Memory|OUT_OF_(?:DEVICE|HOST)_MEMORY"
    r"|ALLOC_FAILED|std::bad_alloc|[Ii]nsufficient [Mm]emory"
    r"|Device memory allocation of size \d+ failed|unable to allocate \S+ buffer"
    r"|failed to allocate (?:\S+ )?(?:buffer|compute|graph|output)"
    r"|failed to allocate +[\d.]+ (?:MB|bytes)|mmap failed: Cannot allocate memory).*"
)
_NOT_FATAL = re.compile(r"prompt cache|async uploads|failed to mlock|fit_params|measure the memory")
_DEVICE = re.compile(r".*(?:(?:CUDA|ROCm|HIP|MUSA|SYCL) error: .*|ErrorDeviceLost.*)")
_WORKER_LOST = re.compile(
    r".*(?:Remote RPC server crashed or returned malformed response"
    r"|Failed to connect to (?P<where>\S+:\d+)|RPC handshake failed for (?P<greeted>\S+:\d+)).*"
)
_WORKER_UNFIT = re.compile(r".*(?:RPC server version mismatch|RPC not supported in this build).*")
_ADDRESS = re.compile(r".*(?:couldn't bind HTTP server socket|couldn't start HTTP listener).*")
_NO_FILE = re.compile(
    r".*(?:failed to open GGUF file|failed to open) .*No such file or directory.*"
    r"|.*(?:gguf_init_from_file|llama_model_load).*No such file or directory.*"
)
_BAD_MODEL = re.compile(
    r".*(?:error loading model: .*|failed to read magic.*|invalid magic characters.*"
    r"|unknown model architecture.*)"
)
_LOAD_FAILED = re.compile(
    r".*(?:failed to load (?:draft )?model|exiting due to model loading error).*"
)
_GENERIC_LOAD = re.compile(r"failed to load model from")
_DOWNLOAD = re.compile(r".*(?:HTTPLIB failed|failed to download|curl_easy_perform\(\) failed).*")
_THROWN = re.compile(r"what\(\): +(.*)")
_VOCABULARY = re.compile(
    r".*(?:draft (?:model )?(?:vocab|bos tokens|eos tokens).* must .*"
    r"|target and draft vocabs are not compatible"
    r"|draft model .* is not compatible with the target model).*"
)
_TRANSLATED = "tokens will be translated between the draft and target"
_ASSERTION = re.compile(r".*(?:GGML_ASSERT\(.*|Assertion .* failed.*|GGML_ABORT.*)")


@dataclass(frozen=True)
class ExitCause:
    """`sentence` is for the user."""

    kind: ExitKind
    sentence: str


def explain_exit(returncode: int, tail: Sequence[str]) -> ExitCause:
    """Judge an exit by its code and the last lines of its output.

    `returncode` is as `subprocess` reports it, negative for a signal; a shell's 128 + n and
    the engine's own 143 (SIGTERM while loading) are read as signals too.
    """
    if returncode == 0:
        return ExitCause("clean", "the engine stopped cleanly")
    lines = [clean_line(line) for line in tail]
    number = _signal(returncode)
    if number == signal.SIGILL:
        return ExitCause(
            "illegal_instruction",
            "this build of the engine uses instructions that this CPU does not have (SIGILL)",
        )
    return _from_words(returncode, lines) or _from_signal(returncode, number, lines)


def _from_words(returncode: int, lines: Sequence[str]) -> ExitCause | None:
    if library := _first(_LIBRARY, lines):
        return ExitCause("missing_library", _library_sentence(library))
    if flag := _first(_BAD_FLAG, lines):
        return ExitCause("bad_flag", f"the engine refused its command line: {flag[0]}")
    if memory := _first(_MEMORY, [line for line in lines if not _NOT_FATAL.search(line)]):
        return ExitCause("out_of_memory", f"out of memory: {memory[0]}")
    if address := _first(_ADDRESS, lines):
        return ExitCause("cannot_listen", f"it cannot listen: {address[0]}")
    if worker := _worker_fault(lines):
        return worker
    if device := _first(_DEVICE, lines):
        return ExitCause("device_failed", f"the GPU failed: {device[0]}")
    if assertion := _first(_ASSERTION, lines):
        return ExitCause("assertion", f"the engine's own check failed: {assertion[0]}")
    failed_to_load = returncode > 0 and _first(_LOAD_FAILED, lines)
    return _load_failure(lines) if failed_to_load else None


def _worker_fault(lines: Sequence[str]) -> ExitCause | None:
    """Whether a worker on another machine is to blame: its loss looks like a crash of ours."""
    if unfit := _first(_WORKER_UNFIT, lines):
        return ExitCause(
            "worker_unfit", f"a worker (rpc) and this engine are of different builds: {unfit[0]}"
        )
    if lost := _first(_WORKER_LOST, lines):
        where = lost["where"] or lost["greeted"]
        which = f"the worker {where}" if where else "a worker on another machine (rpc)"
        return ExitCause("worker_lost", f"{which} was lost: {lost[0]}")
    return None


def _load_failure(lines: Sequence[str]) -> ExitCause:
    if download := _first(_DOWNLOAD, lines):
        return ExitCause("download_failed", f"a model could not be downloaded: {download[0]}")
    if missing := _first(_NO_FILE, lines):
        return ExitCause("missing_model", f"a model file is missing: {missing[0]}")
    if mismatch := _first(_VOCABULARY, lines):
        return ExitCause(
            "vocabulary_mismatch",
            f"the draft's vocabulary does not fit the target's: {mismatch[0]}",
        )
    said = [line for line in lines if not _GENERIC_LOAD.search(line)]
    fault = _first(_BAD_MODEL, said) or _first(_LOAD_FAILED, said)
    words = fault[0] if fault else "it did not say why"
    return ExitCause("bad_model", f"a model could not be loaded: {words}")


def _from_signal(returncode: int, number: int | None, lines: Sequence[str]) -> ExitCause:
    if number == signal.SIGKILL:
        return ExitCause(
            "killed", "killed by SIGKILL, which is how the kernel frees memory when none is left"
        )
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return ExitCause("terminated", f"stopped from outside ({_name(number)})")
    if number is not None:
        thrown = _first(_THROWN, lines)
        why = f": {thrown[1]}" if thrown else ""
        return ExitCause("crash", f"the engine crashed ({_name(number)}){why}")
    last = next((line for line in reversed(lines) if line), "it said nothing")
    return ExitCause(
        "unknown", f"the engine ended with exit code {returncode}: {last[:_MAX_QUOTE]}"
    )


def _library_sentence(found: re.Match[str]) -> str:
    if name := found["elf"] or found["macho"]:
        return f"a shared library is missing: {name}"
    if version := found["version"]:
        return f"this build of the engine was made for a newer system ({version} is not here)"
    return f"a shared library does not fit the engine: it lacks {found['symbol']}"


def _signal(returncode: int) -> int | None:
    if returncode < 0:
        return -returncode
    if 128 < returncode <= 128 + signal.SIGTERM:
        return returncode - 128
    return None


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def clean_line(line: str) -> str:
    """A log line, fit to be shown, without colours and the engine's own timestamp and level."""
    return printable(_LOG_PREFIX.sub("", _COLOUR.sub("", line[:4000])).strip())


def _first(pattern: re.Pattern[str], lines: Iterable[str]) -> re.Match[str] | None:
    return next((found for line in lines if (found := pattern.search(line[:_MAX_QUOTE]))), None)


_NO_SPECULATION: tuple[tuple[re.Pattern[str], str], ...] = (
    (_VOCABULARY, "the draft's vocabulary does not fit the target's"),
    (
        re.compile(
            r"speculative decoding (?:is )?not supported by this context"
            r"|does not support partial sequence removal"
        ),
        "this model's context cannot take tokens back, which speculation needs",
    ),
    (
        re.compile(r"speculative decoding is not supported by multimodal"),
        "this build does not speculate with a multimodal projector",
    ),
    (
        re.compile(r"no implementations specified for speculative decoding"),
        "no speculation type was named",
    ),
    (
        re.compile(
            r"failed to (?:initialize speculative decoding|create draft) context"
            r"|requires a draft context|number of sequences is incompatible"
        ),
        "the draft's context could not be set up",
    ),
    (re.compile(r"failed to load draft model"), "the draft model could not be loaded"),
)


def speculation_fault(lines: Iterable[str]) -> str | None:
    """Why an engine that was told to speculate serves without, None where its log is silent.

    The first matching line decides: later ones are consequences of it. Builds of 2025 that
    translate between two vocabularies complain of the mismatch and speculate all the same.
    """
    found = None
    for line in lines:
        words = clean_line(line)[:_MAX_QUOTE]
        if _TRANSLATED in line:
            return None
        if found is None:
            found = next(
                (
                    f"{why} (the engine: {words})"
                    for said, why in _NO_SPECULATION
                    if said.search(words)
                ),
                None,
            )
    return found
