"""What the doctor thinks of what it saw. Pure: facts in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from autospec import __version__
from autospec.calibration.prepare import Prepared
from autospec.calibration.result import Calibration
from autospec.config.schema import Config, ModelConfig
from autospec.config.values import Address
from autospec.engine.capabilities import Capabilities
from autospec.engine.find import Engine
from autospec.errors import AutospecError
from autospec.hardware.gpu import EngineDevice
from autospec.hardware.snapshot import Hardware

Level = Literal["ok", "note", "warning", "error"]

_NEEDED_OF_BENCH = ("-npp", "-ntg", "-npl", "-pps", "-kvu", "--output-format")
_NO_GPU_OF_OURS = ("BLAS", "RPC")
_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_WORLD_READS = 0o004


@dataclass(frozen=True)
class Finding:
    """One sentence about `subject`; `remedy` says what to do where something is to be done."""

    level: Level
    subject: str
    sentence: str
    remedy: str | None = None


@dataclass(frozen=True)
class Applier:
    """How settings reach the engine, and why not in a better way."""

    name: Literal["live", "cost-vector", "request-fields", "scalar"]
    why: str


@dataclass(frozen=True)
class Folder:
    """A folder of autospec's as it lies there; `mode` is None while it does not exist.

    `ours`: it belongs to this user. `writable`: this user can write into it or, while it does
    not exist, make it. `parent` is the nearest folder that exists.
    """

    name: str
    path: Path
    mode: int | None
    ours: bool
    writable: bool
    parent: Path


def of_error(subject: str, error: AutospecError, level: Level = "error") -> Finding:
    return Finding(level, subject, str(error), error.hint)


def applier(able: Capabilities) -> Applier:
    """The way that is used with a build of these abilities: by flags alone, so far."""
    others = []
    if able.cost_vector:
        others.append("a vector of batch costs at start (GGML_BATCH_COSTS)")
    if able.request_fields:
        others.append("settings in each request (speculative.n_max)")
    also = (
        f"this build would also take {' and '.join(others)}, which autospec does not use yet"
        if others
        else "this build reads no cost vector (GGML_BATCH_COSTS) and no settings in requests"
    )
    return Applier("scalar", f"settings are flags at start, and change by a restart; {also}")


def about_engine(engine: Engine, config: Config | None) -> Iterator[Finding]:
    able = engine.capabilities
    built = f", built {engine.build_date}" if engine.build_date else ""
    yield Finding(
        "ok",
        "engine",
        f"{engine.server} answers (found by {engine.source}): version {engine.version}{built}, "
        f"identity {engine.identity[:12]}, llama.cpp "
        + ("as shared libraries" if engine.shared else "linked in"),
    )
    yield _bench(engine, config)
    types = ", ".join(able.spec_types)
    yield Finding(
        "ok" if types else "warning",
        "speculation",
        f"flags of the generation {able.generation}, types: {types or 'none'}",
        None if types else "take a newer llama.cpp: this one can only decode plainly",
    )
    if able.own_tuning is not None:
        yield Finding("note", "speculation", f"its own {able.own_tuning} is left switched off")


def _bench(engine: Engine, config: Config | None) -> Finding:
    models = config.enabled_models().values() if config else ()
    wanted = any(model.type != "off" and (model.draft or model.draft_hf) for model in models)
    level: Level = "error" if wanted else "warning"
    if engine.batched_bench is None:
        return Finding(
            level,
            "benchmark",
            "there is no llama-batched-bench beside llama-server: costs cannot be measured",
            f"build it from the same source and put it into {engine.folder}",
        )
    lacking = [flag for flag in _NEEDED_OF_BENCH if flag not in engine.bench_flags]
    if lacking:
        return Finding(
            level,
            "benchmark",
            f"{engine.batched_bench} does not know {', '.join(lacking)}",
            "take a newer llama.cpp, where it does",
        )
    return Finding("ok", "benchmark", f"{engine.batched_bench} belongs to it")


def about_devices(
    hardware: Hardware, devices: tuple[EngineDevice, ...] | None
) -> Iterator[Finding]:
    """GPUs that the drivers name against devices that the engine names (None: it names none)."""
    for problem in hardware.problems:
        yield Finding("warning", "hardware", problem)
    for gpu in hardware.gpus:
        for error in gpu.errors:
            yield Finding("warning", "hardware", f"{gpu.vendor} GPU {gpu.index}: {error}")
    gpus = ", ".join(gpu.name or f"{gpu.vendor} GPU {gpu.index}" for gpu in hardware.gpus)
    if devices is None:
        yield Finding("note", "devices", "the engine does not tell what it computes on")
        return
    names = ", ".join(f"{device.name} ({device.description})" for device in devices)
    local = [device for device in devices if not device.name.startswith(_NO_GPU_OF_OURS)]
    if gpus and not local:
        yield Finding(
            "warning",
            "devices",
            f"this machine has {gpus}, but the engine computes on the processor",
            "use a build for this GPU (CUDA, ROCm, Vulkan, …) and check its driver",
        )
    elif len(local) < len(hardware.gpus):
        yield Finding("note", "devices", f"the engine sees {names}, the drivers name more: {gpus}")
    elif not devices:
        yield Finding("ok", "devices", "the engine computes on the processor, and no GPU was seen")
    else:
        yield Finding("ok", "devices", f"the engine sees {names}")


def about_model(prepared: Prepared, model: ModelConfig, stray: Sequence[str]) -> Iterator[Finding]:
    """`stray` are variables that another finding names already."""
    launch, able = prepared.launch, prepared.engine.capabilities
    subject = f"model {launch.name}"
    files = [header for header in (prepared.target, prepared.draft) if header is not None]
    sizes = " and ".join(
        f"{header.path.name} ({header.architecture}, {header.size_bytes / 1e9:.2f} GB)"
        for header in files
    )
    if sizes:
        fit = ", which belong together" if len(files) > 1 else ""
        what = f"{sizes}{fit}; {prepared.context} tokens of context, slots: {launch.slots}"
        yield Finding("ok", subject, what)
    for repository in (launch.hf, launch.draft_hf):
        if repository is not None:
            said = f"{repository} is fetched by the engine, and was not looked into"
            yield Finding("note", subject, said)
    for note in prepared.notes:
        if not any(name in note for name in stray):
            yield Finding("warning", subject, note)
    if isinstance(model.type, tuple):
        lacking = [kind for kind in model.type if kind not in able.spec_types]
        if lacking:
            yield Finding(
                "error",
                subject,
                f"this engine has no speculation type {', '.join(lacking)}",
                f"it has {', '.join(able.spec_types) or 'none'}",
            )
    elif not launch.has_draft and model.type == "auto":
        yield Finding("note", subject, "without a draft model it is served plainly")
    if model.thresholds is not None:
        yield Finding(
            "warning",
            subject,
            "the pinned thresholds have no effect: flags at start cannot carry them",
            "pin n_max and p_min instead",
        )


def about_calibration(
    name: str, known: Calibration | None, budget: float, now: float, *, earlier: bool
) -> Finding:
    """`known` holds for all that counts now; `earlier`: something was measured before that
    does not. `budget` in seconds, `now` as seconds since 1970."""
    subject = f"calibration {name}"
    if known is None:
        why = (
            "measured before, but engine, model files, flags or machine are others now"
            if earlier
            else "not measured yet"
        )
        return Finding(
            "note",
            subject,
            f"{why}; the next start measures for up to {budget:.0f} s",
            f"autospec calibrate {name} measures now",
        )
    hours = max(0.0, now - known.made_at) / 3600
    age = f"measured {hours / 24:.0f} days ago" if hours >= 48 else f"measured {hours:.1f} h ago"
    if known.unsure:
        doubts = "; ".join(known.remarks) or "the figures vary too much"
        return Finding(
            "warning",
            subject,
            f"{age}, and unsure: {doubts}",
            f"stop what else runs, then autospec calibrate {name} --force",
        )
    depths = ", ".join(map(str, known.surface.depths))
    return Finding("ok", subject, f"{age}, at depths {depths}")


def about_address(name: str, address: Address, fault: str | None, ours: int | None) -> Finding:
    """`fault` says why one cannot listen there now, `ours` which child of the daemon does."""
    subject = f"address {name}"
    if ours is not None:
        return Finding("ok", subject, f"{address.url} is served (llama-server, pid {ours})")
    if address.socket is not None and address.socket.suffix != ".sock":
        return Finding(
            "error",
            subject,
            f"llama-server takes only sockets ending in .sock, not {address}",
            f"write unix:{address.socket}.sock",
        )
    if fault is not None:
        return Finding(
            "error",
            subject,
            f"{address.url}: {fault}",
            f"end what listens there, or set models.{name}.listen to another address",
        )
    return Finding("ok", subject, f"{address.url} is free")


def about_daemon(report: dict[str, Any] | None, engine: Engine | None) -> Iterator[Finding]:
    """`report` is what the running daemon answers, None when none runs."""
    if report is None:
        yield Finding("note", "daemon", "no daemon is running", "autospec serve starts one")
        return
    if report["version"] != __version__:
        yield Finding(
            "warning",
            "daemon",
            f"the running daemon is autospec {report['version']}, this is {__version__}",
            "start it anew",
        )
        return
    running, build = report["daemon"], report["engine"]
    yield Finding("ok", "daemon", f"pid {running['pid']} serves {running['config']}")
    if engine is not None and engine.identity != build["identity"]:
        yield Finding(
            "warning",
            "daemon",
            f"it runs {build['path']} ({build['identity'][:12]}), not the engine found now",
            "start it anew to use this engine",
        )
    for model in report["models"]:
        subject = f"model {model['name']}"
        if model["state"] == "failed":
            remedy = "mend it, then start the daemon anew"
            yield Finding("error", subject, f"failed: {model['reason']}", remedy)
        if model["fault"]:
            yield Finding("warning", subject, model["fault"])


def about_folder(folder: Folder) -> Finding:
    what = f"{folder.name} folder {folder.path}"
    if folder.mode is None:
        if folder.writable:
            return Finding("ok", "folders", f"{what} will be made when it is needed")
        return Finding(
            "error", "folders", f"{what} cannot be made", f"make {folder.parent} writable"
        )
    if not folder.writable:
        return Finding(
            "error", "folders", f"{what} is not writable", "give it to the user who runs autospec"
        )
    if not folder.ours:
        return Finding(
            "warning",
            "folders",
            f"{what} belongs to another user, who can change what is measured",
            "give it to the user who runs autospec",
        )
    if folder.mode & _OTHERS:
        level: Level = "error" if folder.mode & _OTHERS_WRITE else "warning"
        may = "write into" if folder.mode & _OTHERS_WRITE else "look into"
        return Finding(
            level,
            "folders",
            f"others may {may} the {what} (mode {folder.mode:04o})",
            f"chmod 700 {folder.path}",
        )
    return Finding("ok", "folders", f"{what} is private")


def about_key_file(path: Path, mode: int) -> Finding:
    if mode & _WORLD_READS:
        return Finding(
            "warning",
            "keys",
            f"every user of this machine can read {path} (mode {mode:04o})",
            f"chmod 600 {path}",
        )
    return Finding("ok", "keys", f"{path} is not open to all")


def about_environment(stray: Sequence[str]) -> Finding:
    if not stray:
        return Finding("ok", "environment", "no variable that llama-server would obey is set")
    return Finding(
        "warning",
        "environment",
        f"{', '.join(stray)}: set, and kept from llama-server",
        "unset them, and write what they say into the configuration",
    )


def about_compiler(path: str | None) -> Finding:
    if path is None:
        return Finding("note", "compiler", "no C compiler; one is only needed to build an engine")
    return Finding("note", "compiler", f"C compiler: {path}")
