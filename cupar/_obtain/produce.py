"""A build: from the cache, else from a template and a link.

`produce` fetches a build by its key. On a miss, `build_here` makes it in this process, or `build_with_helper`
in a helper process. Templates are separate entries, which `_template` fetches or makes.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _cache
from .._base import log
from .._base.bounded import of_builds
from .._base.device import public, text
from .._call.built import Artifacts, Build, Built, Policy
from .._compile import entries, toolchain
from .._compile.key import arguments, build_parts, digest, notes, template_parts
from .._device import driver
from .._ir.specialisation import Specialisation
from .._kernels import headers, image
from .._launch.code import Code
from .._store.entry import Entry
from .._store.memory import SingleFlightCache

if TYPE_CHECKING:
    from .._external.linkable import Linkable

T = TypeVar("T")
_SECONDS = 300.0  # that a helper may take for a link, which usually takes 2

templates: SingleFlightCache[list[bytes]] = of_builds(SingleFlightCache(maxsize=32))

Operators = dict[str, "list[bytes | Linkable]"]  # linked code, by parameter
# Makes a build of a specialisation, and adds seconds by stage to a dict; returns the serialised build, the
# size of its cubin, and the origin: "linked" or "built".
Make = Callable[[Specialisation, dict[str, float]], tuple[bytes, int, str]]


def produce(
    spec: Specialisation,
    device: driver.Device | None,
    make_build: Make | None = None,
    found: _cache.FetchedEntry | None = None,
) -> Built:
    """Fetch a build, or make it.

    Parameters
    ----------
    spec : Specialisation
        With the user's functions, which the code that stays in memory does not keep.
    device : Device or None
        The current one, to load the code; None: it is not loaded.
    make_build : callable, optional
        See `Make`; by default `build_here`.
    found : FetchedEntry, optional
        The entry, if it was fetched already.
    """
    seconds: dict[str, float] = {}
    parts = build_parts(spec)
    origin = "disk"

    def make() -> Entry:
        nonlocal origin
        from .._base import progress
        from .._jobs.threads import off_main_thread

        build = partial(make_build or build_here, spec, seconds)
        what = f"kernel {spec.operators[0][1].name}" if spec.is_kernel else spec.algorithm
        blob, cubin_size, origin = progress.building(
            f"{what} for {text(spec.cc)}", lambda: off_main_thread(build)
        )
        return _entry(parts, blob, seconds, **notes(spec), cubin_size=cubin_size)

    def use(entry: Entry) -> tuple[Code, int]:
        code = code_of(spec.without_user(), entry.payload)
        return code, code.check()

    def load(found: tuple[Code, int]) -> None:
        if device is not None:
            start = time.perf_counter()
            found[0].loaded(driver.current_context())
            seconds["load"] = time.perf_counter() - start

    fetched, (code, size) = entries.fetch(parts, make, use, load, found)
    key = fetched.key
    if log.logger(log.INFO):
        from .._inspect import log as lines

        lines.fetched(origin, key, fetched, seconds)
    if fetched.origin == "disk":
        seconds["read"] = fetched.seconds
    tier = spec.option("tier") or "fast"
    made = _shown(spec, code)
    policy = _policy(spec, fetched.entry.payload)
    cc = public(spec.cc)
    compilers: dict[str, str] = {}
    if toolchain.missing(parts["versions"]):
        from .._compile import alike

        compilers = alike.versions(fetched.entry)
    build = Build(
        spec.algorithm,
        key,
        cc,
        origin,
        seconds,
        size,
        fetched.source,
        tier,
        policy,
        compilers,
        arguments(spec),
        made,
    )
    if os.environ.get("CUPAR_DUMP"):
        from .._inspect import dump

        dump.write(build)
    return Built(code, build)


def code_of(kept: Specialisation, blob: bytes) -> Code:
    """Return the code of a build; `kept` is the specialisation that stays in memory."""
    if not kept.is_cpu:
        return Code(kept, blob)
    from .._cpu.code import CpuCode
    from .._cpu.schedules import has_code

    host: Any = CpuCode(kept, blob, has_code(kept))
    return host  # type: ignore[no-any-return]


def _policy(spec: Specialisation, blob: bytes) -> Policy | None:
    """Return the policy of a build, and its source."""
    family = spec.family
    if family is None or family.tunable is None or spec.is_cpu:
        return None
    found = family.tunable.of(spec)
    if found is not None:
        source = "cupar" if spec.option("policy") is None else "tuned"
        return Policy({name: int(value) for name, value in found._asdict().items()}, source)
    properties: dict[str, int] = {}
    with suppress(image.DamagedError):  # loading it reports that
        properties = image.properties_in(blob)
    names = ("threads", "items", *(("ahead_threads", "ahead_tile") if properties.get("ahead_tile") else ()))
    values = {name: properties[name] for name in names if name in properties}
    return Policy(values, "CUB" if headers.has_cubs(family.source_of(spec)) else "cupar")


def _shown(spec: Specialisation, code: Code) -> Artifacts:
    """Return functions that show a build, recompiling the frozen copies of its operators."""
    kept = spec.without_user(with_code=True)
    if spec.is_cpu:
        return Artifacts(code.cubin, code.cubin, partial(_made_again, _llvm, kept), code.cubin)  # type: ignore[arg-type]
    ltoir, llvm = partial(_made_again, _ltoirs, kept), partial(_made_again, _llvm, kept)
    return Artifacts(code.cubin, ltoir, llvm, partial(_made_again, _ptx, kept))


def _made_again(shown: Callable[[Specialisation], T], spec: Specialisation) -> T:
    from .._jobs.threads import off_main_thread

    return off_main_thread(partial(shown, spec))


def _linked(spec: Specialisation) -> tuple[dict[str, bytes | Linkable], list[str] | None]:
    """Return all linked code by its source, and the linker's options, None for the default ones.

    It is compiled again, except for code in the cache.
    """
    from .. import _build
    from .._compile import python_kernel

    found: dict[str, bytes | Linkable] = {}

    def put(name: str, codes: Iterable[bytes | Linkable]) -> None:
        found.update((f"{name} {k}" if k else name, code) for k, code in enumerate(codes))

    with toolchain.compilers():
        if spec.is_kernel:
            made = python_kernel.compile_kernel(spec)
            codes, options = _build.kernel_parts(spec, made, _kernel_links(spec, {}))
            put("kernel", codes)
            return found, options
        template, _, operators = _parts(spec, {}, {})
    put("kernels", template)
    for name, codes in operators.items():
        put(name, codes)
    return found, None


def _ltoirs(spec: Specialisation) -> dict[str, bytes]:
    codes, _ = _linked(spec)
    is_ltoir = {name: code for name, code in codes.items() if getattr(code, "kind", "ltoir") == "ltoir"}
    return {name: code if isinstance(code, bytes) else code.data for name, code in is_ltoir.items()}


def _ptx(spec: Specialisation) -> str:
    from .._compile import nvjitlink

    codes, options = _linked(spec)
    return nvjitlink.ptx([*codes.values()], spec.cc, options)


def _llvm(spec: Specialisation) -> dict[str, str]:
    from .. import _build

    with toolchain.compilers():
        if spec.is_cpu:
            from .._cpu import build

            return build.llvm(spec)
        return _build.llvm(spec)


def _entry(parts: dict[str, Any], payload: bytes, seconds: dict[str, float], **more: Any) -> Entry:
    meta = {
        "algorithm": parts["algorithm"],
        "cc": parts["cc"],
        "entry": parts["entry"],
        "seconds": {stage: round(value, 4) for stage, value in seconds.items()},
        "parts": parts,
        **more,
    }
    return Entry(meta, payload)


def build_here(
    spec: Specialisation, seconds: dict[str, float], operators: Operators | None = None
) -> tuple[bytes, int, str]:
    """Make a build in this process: see `Make`.

    `operators` has the compiled operators, if they were compiled before; else they are put there.
    """
    from .. import _build
    from .._jobs.threads import step

    with toolchain.compilers():
        if spec.is_cpu:
            with step(), _build.timed(seconds, "compile"):
                blob = built_on_cpu(spec)
            return blob, len(blob), "built"
        if spec.is_kernel:
            with step():
                return *_build.kernel(spec, _kernel_links(spec, seconds), seconds), "built"
        template, made, operators = _parts(spec, seconds, {} if operators is None else operators)
        with step():
            return *_build.link(spec, template, operators, seconds), "built" if made else "linked"


def built_on_cpu(spec: Specialisation) -> bytes:
    """Return the object code of a specialisation for the CPU."""
    from .._cpu import build

    return build.build(spec)


def _kernel_links(spec: Specialisation, seconds: dict[str, float]) -> list[bytes | Linkable]:
    """Return the code from elsewhere that is linked to a kernel of the user's, each piece once."""
    from .. import _build
    from .linked import linked

    ((_, op),) = spec.operators
    given = dict.fromkeys(op.links, f"kernel {op.name}") | dict.fromkeys(spec.links, _build.LINK)
    with _build.timed(seconds, "compile"):
        return [code for each, name in given.items() for code in linked(name, [each], spec.cc)]


def _parts(
    spec: Specialisation, seconds: dict[str, float], operators: Operators
) -> tuple[list[bytes], bool, Operators]:
    """Return the code to link: the template, whether it was made, and the operators."""
    from .._jobs import threads

    pending = None
    if spec.functions or spec.links:  # at the same time: numba works in Python, and NVRTC needs no Python
        pending = threads.begin(lambda: compile_operators(spec, seconds, operators))
    try:
        template, made = _template(spec, seconds)
    except Exception:
        if pending is not None and (wrong := pending.exception()) is not None:
            raise wrong from None  # the user's own first
        raise
    if pending is not None:
        pending.result()
    return template, made, operators


def compile_operators(spec: Specialisation, seconds: dict[str, float], operators: Operators) -> None:
    """Compile the operators of a specialisation into `operators`, unless that has them."""
    from .. import _build
    from .._jobs.threads import step
    from .linked import linked

    if not operators and (spec.functions or spec.links):
        with toolchain.compilers(), step():
            made = _build.operators(spec, seconds)
            with _build.timed(seconds, "operator"):
                operators.update((name, linked(name, codes, spec.cc)) for name, codes in made.items())


# --- In a helper process -------------------------------------------------------------------------------


def build_with_helper(
    spec: Specialisation, seconds: dict[str, float], operators: Operators
) -> tuple[bytes, int, str]:
    """Do the same as `build_here` in an idle helper process; if that fails, in this process."""
    import pickle

    from .._compile import workers
    from .._jobs import threads

    compile_operators(spec, seconds, operators)
    with workers.helper_of_own() as helper:
        if helper is not None:
            keyed = digest(template_parts(spec)), build_parts(spec), notes(spec)
            try:
                asked = pickle.dumps((spec.without_user(), operators, *keyed))
                answer = pickle.loads(helper.call(f"{__name__}:build_in_helper", asked, _SECONDS))
                if answer is not None:
                    blob, size, origin, stages = answer
                    seconds.update(stages)
                    return blob, size, origin
            except Exception as error:  # it may still work in this process
                log.debug("linked without a helper process: %s: %s", type(error).__name__, error)
        if threads.is_abandoned():
            raise threads.AbandonedError("not linked, as the process ends")
        return build_here(spec, seconds, operators)


def build_in_helper(request: bytes) -> bytes:
    """Make a build of a specialisation without its functions, from their compiled code.

    If the requesting process has ended, the build is stored for others.
    """
    import pickle

    from .. import _build
    from .._jobs import helpers

    spec, operators, template_key, parts, more = pickle.loads(request)
    answer = None
    seconds: dict[str, float] = {}
    with suppress(Exception):
        if digest(template_parts(spec)) == template_key:
            template, made = _template(spec, seconds)
            blob, size = _build.link(spec, template, operators, seconds)
            answer = blob, size, "built" if made else "linked", seconds
            store = _cache.disk() if helpers.is_orphan() else None
            if store is not None:
                store.store(digest(parts), _entry(parts, blob, seconds, **more, cubin_size=size))
    return pickle.dumps(answer)


# --- Templates -----------------------------------------------------------------------------------------


def _template(spec: Specialisation, seconds: dict[str, float]) -> tuple[list[bytes], bool]:
    from .. import _build
    from .._jobs.threads import step

    parts = template_parts(spec)
    key = digest(parts)
    made = False

    def make() -> Entry:
        nonlocal made
        made = True
        stages: dict[str, float] = {}
        with step():
            payload = _build.template(spec, stages)
        seconds.update(stages)
        return _entry(parts, payload, stages)

    def find() -> list[bytes]:
        found, template = entries.fetch(parts, make, lambda entry: _build.unpack(entry.payload))
        if log.logger(log.DEBUG):
            from .._inspect import log as lines

            lines.template(key, found)
        return template

    return templates.get_or_make(key, find), made
