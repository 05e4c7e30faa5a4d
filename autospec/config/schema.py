"""What may stand in autospec.toml: the one source of checks, JSON schema and example.

The docstring under each option is its description everywhere. Shapes and ranges are declared
here and in `types`; what concerns several options or the file system is in `rules`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from autospec.config.types import (
    MOST_DRAFTED,
    MOST_SLOTS,
    Arguments,
    AutoDepths,
    AutoDuration,
    Duration,
    FilePath,
    KeyFile,
    ListenAddress,
    ModelName,
    Names,
    Repository,
    Share,
    SpeculationTypes,
    Thresholds,
    Variable,
    VariableName,
    Workers,
)
from autospec.config.values import Address
from autospec.engine.launch import Launch


class Section(BaseModel):
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )


class ServerSection(Section):
    """Where the models are reached."""

    listen: ListenAddress = Address("127.0.0.1", 8080)
    """The address for clients. A request's `model` says which one it is for; paths under
    /upstream/NAME/ reach the model NAME whatever they ask."""

    front_door: bool = True
    """Stand between clients and children: requests wait while a child is away, and one that it
    could not begin to answer goes to the next. false: every child listens by itself, the first
    one at `listen`, the others at the next ports in the order of this file (a disabled model
    keeps its port) unless they name one of their own; the options below have no effect then."""

    wait: Duration = 120.0
    """How long a request waits for a model that is not there."""

    max_body: int = Field(256 << 20, ge=1 << 10, le=1 << 40)
    """Most bytes of a request's body. Large ones are kept in a temporary file meanwhile."""

    remote_images: bool = True
    """Let requests name images, sounds and files by an address that the engine then fetches.
    false: refuse those; they have to be part of the request."""

    allowed_hosts: Names = Field((), examples=[["gpu-box.lan"]])
    """Names under which clients may ask, beside localhost, IP addresses and the name in
    `listen`; a reverse proxy's, for example. "*": any."""

    allowed_origins: Names = Field((), examples=[["http://localhost:3000"]])
    """Origins of web pages that may ask from a browser. "*": any."""

    api_key_file: KeyFile | None = Field(None, examples=["~/.config/autospec/api-keys"])
    """File with the keys that clients must show, one a line. Required for any address that
    other machines can reach. "credential:api-keys" is the one that the system service gets from
    /etc/credstore/api-keys."""

    drain: Duration = 30.0
    """How long a stop waits for requests that are being answered. A second signal ends it."""


class EngineSection(Section):
    """Which llama.cpp runs the models."""

    path: FilePath | None = Field(None, examples=["~/llama.cpp/build/bin"])
    """`llama-server`, or the folder it lies in. Without it the engine is looked for in
    AUTOSPEC_ENGINE, in PATH and in this Python environment."""

    live_policy: Literal["auto", "off"] = "auto"
    """Under "auto" drafts are steered inside the running engine where that proves to work:
    thresholds then follow the traffic without a restart. "off": flags at start only."""

    environment: dict[VariableName, Variable] = Field({}, examples=[{"CUDA_VISIBLE_DEVICES": "0"}])
    """Extra environment variables for the engine."""

    start_timeout: AutoDuration = None
    """How long a model may take to load. "auto" grows with the size of its file."""


class ModelConfig(Section):
    """One model, served by one llama-server. The name after the dot is yours to choose."""

    enabled: bool = True
    """Serve this model."""

    path: FilePath | None = Field(None, examples=["~/models/Qwen3-8B-Q4_K_M.gguf"])
    """GGUF file of the model. Each model has either `path` or `hf`."""

    hf: Repository | None = Field(None, examples=["ggml-org/Qwen3-8B-GGUF:Q4_K_M"])
    """Hugging Face repository that the engine downloads the model from."""

    draft: FilePath | None = Field(None, examples=["~/models/Qwen3-0.6B-Q8_0.gguf"])
    """GGUF file of a small model with the same vocabulary, which drafts for this one."""

    draft_hf: Repository | None = Field(None, examples=["ggml-org/Qwen3-0.6B-GGUF:Q8_0"])
    """Hugging Face repository of the draft model, in place of `draft`."""

    listen: ListenAddress | None = Field(None, examples=["127.0.0.1:9000"])
    """An address for this model alone, beside the one in [server]."""

    context: int = Field(0, ge=0, le=100_000_000)
    """Context in tokens, for all slots together. 0: as long as the model was trained for."""

    slots: int = Field(1, ge=1, le=MOST_SLOTS)
    """How many requests are served at the same time."""

    rpc: Workers = Field((), examples=[["10.0.0.2:50052", "10.0.0.3:50052"]])
    """Workers on other machines: `ggml-rpc-server`s of the same llama.cpp, whose devices hold
    parts of the model. They ask nobody for a key: only on a network of your own."""

    idle_unload: Duration | None = Field(None, examples=["30m"])
    """Unload the model after so long without a request; the next request loads it again.
    Without it the model stays loaded."""

    extra: Arguments = Field((), examples=[["-ngl", "99", "-fa", "on"]])
    """Further llama-server arguments: placement, caches, templates, LoRA, `--mmproj` and so
    on. What autospec sets itself, and what opens the machine to clients, is refused."""

    type: SpeculationTypes = "auto"
    """How to speculate: "auto" measures and decides, "off" never does, and names such as
    "draft-simple" or "draft-mtp, ngram-mod" pin it."""

    n_max: int | None = Field(None, ge=1, le=MOST_DRAFTED, examples=[8])
    """Pin the most tokens to draft in a round. Unset options are chosen by measurement."""

    n_min: int | None = Field(None, ge=0, le=MOST_DRAFTED, examples=[0])
    """Pin the fewest drafted tokens that are worth verifying."""

    p_min: Share | None = Field(None, examples=[0.4])
    """Pin the probability under which a drafted token ends the draft."""

    thresholds: Thresholds | None = Field(None, examples=[[0.3, 0.45, 0.6]])
    """Pin, for each position of a draft, the probability of the whole draft so far being
    accepted under which it ends there."""

    @property
    def pinned(self) -> bool:
        """Whether a number of the draft is the user's."""
        numbers = (self.n_max, self.n_min, self.p_min, self.thresholds)
        return any(number is not None for number in numbers)

    def launch(self, name: str) -> Launch:
        """What `llama-server` is asked to be; `name` is the model's key in the file."""
        return Launch(
            name=name,
            model=self.path,
            hf=self.hf,
            draft=self.draft,
            draft_hf=self.draft_hf,
            context=self.context,
            slots=self.slots,
            rpc=self.rpc,
            extra=self.extra,
        )


class CalibrationSection(Section):
    """How the cost of batches is measured."""

    budget: Duration = 120.0
    """Time that a calibration may take. What did not fit is said."""

    depths: AutoDepths = None
    """Context depths, in tokens, at which batches are measured."""

    max_draft: int = Field(16, ge=1, le=MOST_DRAFTED)
    """Longest draft that is considered."""

    repeats: int = Field(5, ge=1, le=100)
    """How often a batch is measured at most; less where the spread is small."""

    rehearse: bool = True
    """Let the server draft for some built-in prompts, to learn what real rounds cost and how
    often drafted tokens are accepted before the first request comes."""


class RetuneSection(Section):
    """How settings follow the traffic."""

    enabled: bool = True
    """Choose again as acceptance and load are observed."""

    after: Duration = 60.0
    """Traffic to observe before the first new choice."""

    min_gain: Share = 0.05
    """Gain in tokens per second that a restart must promise; 0.05 is 5 %."""

    max_restarts_per_hour: int = Field(2, ge=0, le=60)
    """Restarts for the sake of a better setting, the last of them kept for the way back from one
    that turns out slower. 0: only settings that need none change."""

    n_grams: bool = True
    """Try on the traffic what n-gram types do, alone and before the draft model: for 200 rounds
    after every 10,000, at a moment without requests; less often where that gained nothing."""

    explore: Annotated[float, Field(ge=0, le=0.1)] = 0.01
    """Share of rounds that may draft longer than pays by what is known, to learn whether it
    would. Only with the live policy; where nothing is drafted, one round in 16 may (0: none)."""


class Config(Section):
    """Configuration of autospec."""

    server: ServerSection = ServerSection()
    engine: EngineSection = EngineSection()
    models: dict[ModelName, ModelConfig] = {}
    calibration: CalibrationSection = CalibrationSection()
    retune: RetuneSection = RetuneSection()

    def enabled_models(self) -> dict[str, ModelConfig]:
        return {name: model for name, model in self.models.items() if model.enabled}

    def doors(self) -> dict[Address, str | None]:
        """Where the front door listens for clients; an address may be of one model alone."""
        own: dict[Address, str | None] = {
            model.listen: name for name, model in self.enabled_models().items() if model.listen
        }
        return {self.server.listen: None} | own

    def address(self, name: str) -> Address:
        """Where clients reach the model `name`."""
        return self.addresses()[name]

    def addresses(self) -> dict[str, Address]:
        """Where clients reach each model, disabled ones included.

        With the front door that is its address, or the model's own.
        """
        if not self.server.front_door:
            return self.own_addresses()
        listen = self.server.listen
        return {name: model.listen or listen for name, model in self.models.items()}

    def own_addresses(self) -> dict[str, Address]:
        """Where each child listens when there is no front door, disabled ones included.

        The first model without an address of its own takes [server].listen, the others the
        ports above it that nobody names.
        """
        own = {model.listen.port for model in self.models.values() if model.listen}
        found: dict[str, Address] = {}
        following = None
        for name, model in self.models.items():
            if model.listen is not None:
                found[name] = model.listen
            elif following is None:
                found[name] = following = self.server.listen
            else:
                port = following.port + 1
                while port in own:
                    port += 1
                found[name] = following = following.on_port(port)
        return found
