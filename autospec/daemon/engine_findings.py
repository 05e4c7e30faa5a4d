"""What the doctor thinks of an engine, and of the models that it is to run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autospec.calibration.prepare import Prepared
from autospec.calibration.result import Calibration
from autospec.config.schema import Config, ModelConfig
from autospec.daemon.findings import Finding, Level
from autospec.engine.arguments import UnknownArgument
from autospec.engine.find import Engine
from autospec.hardware.gpu import EngineDevice
from autospec.hardware.snapshot import Hardware

_NEEDED_OF_BENCH = ("-npp", "-ntg", "-npl", "-pps", "-kvu", "--output-format")
_NO_GPU_OF_OURS = ("BLAS", "RPC")


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


def about_extra(name: str, strange: Sequence[UnknownArgument]) -> Iterator[Finding]:
    for one in strange:
        yield Finding(
            "error",
            f"model {name}",
            f"extra: this build of llama-server does not know {one.argument}",
            one.advice or "remove it from `extra`",
        )


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
