"""What the benchmarks share: child processes, the machine they ran on, tables, JSON and plots.

Every measurement is taken in a child process that runs a small script of its own, so that nothing which
a benchmark itself imports is imported already in what it measures.
"""

from __future__ import annotations

import argparse
import compileall
import datetime
import importlib
import importlib.util
import io
import json
import logging
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"

PROJECTS = (
    "cuda-cccl",
    "cuda-bindings",
    "cuda-core",
    "cuda-pathfinder",
    "nvidia-cuda-nvrtc",
    "nvidia-nvjitlink",
    "nvidia-nvvm",
    "numba-cuda",
    "numba-cuda-mlir",
    "numba",
    "llvmlite",
    "numpy",
    "cupy-cuda12x",
    "cupy-cuda13x",
    "torch",
    "jax",
    "jaxlib",
)


# --- Child processes -------------------------------------------------------------------------------------


class ChildError(RuntimeError):
    """A child process failed; the message holds the end of what it wrote."""


@dataclass(frozen=True)
class Child:
    """What a child process printed, as JSON, and the seconds from its start to its end."""

    result: dict[str, Any]
    wall: float


@dataclass(frozen=True)
class Started:
    """A child process that runs."""

    process: subprocess.Popen[str]
    start: float

    def finish(self, timeout: float = 300) -> Child:
        """Wait for it, and read the JSON in the last line that it printed.

        Raises
        ------
        ChildError
            If it fails, prints something else, or takes longer than `timeout` seconds.
        """
        try:
            out, err = self.process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.communicate()
            raise ChildError(f"it took longer than {timeout:g} s") from None
        wall = time.perf_counter() - self.start
        if self.process.returncode != 0:
            raise ChildError(f"exit status {self.process.returncode}:\n{(out + err)[-3000:].strip()}")
        try:
            return Child(json.loads(out.splitlines()[-1]), wall)
        except (IndexError, ValueError):
            raise ChildError(f"it printed no JSON:\n{(out + err)[-3000:].strip()}") from None


class Workplace:
    """A temporary folder with a copy of this checkout's cupar, as if installed, and the children's scripts.

    The copy has its bytecode beside it, as pip leaves a package; a checkout may have none and be slower to
    import by half. Nor does it change if somebody edits the checkout meanwhile.

    Parameters
    ----------
    folder : Path
        Where to put all that.
    scripts : mapping of str to str
        The source of each child's script, by name.
    root : Path, optional
        A checkout with another cupar.
    """

    def __init__(self, folder: Path, scripts: Mapping[str, str], root: Path = ROOT) -> None:
        self.folder = folder
        site = folder / "site"
        shutil.copytree(root / "cupar", site / "cupar", ignore=shutil.ignore_patterns("__pycache__"))
        compileall.compile_dir(site, quiet=1)
        path = [str(site), os.environ.get("PYTHONPATH", "")]
        unwanted = ("CUPAR_", "PYTHONDONTWRITEBYTECODE")
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(unwanted)}
        self._env["PYTHONPATH"] = os.pathsep.join(filter(None, path))
        for name, source in scripts.items():
            self.script(name).write_text(source)

    def script(self, name: str) -> Path:
        """Return the file of a script."""
        return self.folder / f"child_{name}.py"  # its folder is in sys.path, so not torch.py

    def new_folder(self) -> Path:
        """Return an empty folder, for a cache."""
        return Path(tempfile.mkdtemp(prefix="empty-", dir=self.folder))

    def start(self, script: str, *arguments: object, env: Mapping[str, str] | None = None) -> Started:
        """Start a child.

        Parameters
        ----------
        script : str
            The name of what it runs. The last line that it prints is to be JSON.
        *arguments
            Its ``sys.argv[1:]``. One that is callable is called at the last moment, for what tells the time.
        env : mapping of str to str, optional
            Environment variables to add.
        """
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        command = [sys.executable, str(self.script(script))]
        variables = {**self._env, **(env or {})}
        start = time.perf_counter()
        texts = [str(argument() if callable(argument) else argument) for argument in arguments]
        return Started(subprocess.Popen([*command, *texts], env=variables, **pipes), start)

    def run(self, script: str, *arguments: object, env: Mapping[str, str] | None = None) -> Child:
        """Start a child and wait for it."""
        return self.start(script, *arguments, env=env).finish()


def checkout(reference: str, folder: Path) -> Path:
    """Return a folder with the cupar of a commit or branch, or of a checkout that is named.

    Raises
    ------
    ValueError
        If there is neither.
    """
    if Path(reference, "cupar").is_dir():
        return Path(reference)
    command = ["git", "-C", str(ROOT), "archive", reference, "cupar"]
    packed = subprocess.run(command, capture_output=True, check=False)
    if packed.returncode:
        raise ValueError(f"{reference}: neither a checkout nor a commit: {packed.stderr.decode().strip()}")
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


def is_installed(module: str) -> bool:
    """Tell whether a module could be imported, without importing it."""
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        return False


# --- The machine -----------------------------------------------------------------------------------------

# In a child, so that the benchmark itself never holds the driver open, which speeds up whoever comes next.
_ASK_GPU = """
import ctypes, json
from ctypes import byref, c_int, create_string_buffer

found = None
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    device, major, minor = c_int(), c_int(), c_int()
    name, driver = create_string_buffer(256), create_string_buffer(96)
    if cuda.cuInit(0) == 0 and cuda.cuDeviceGet(byref(device), 0) == 0:
        cuda.cuDeviceGetName(name, 256, device)
        cuda.cuDeviceGetAttribute(byref(major), 75, device)
        cuda.cuDeviceGetAttribute(byref(minor), 76, device)
        found = {"name": name.value.decode(), "cc": 10 * major.value + minor.value, "driver": "unknown"}
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2() == 0 and nvml.nvmlSystemGetDriverVersion(driver, 96) == 0:
            found["driver"] = driver.value.decode()
except OSError:
    pass
print(json.dumps(found))
"""


def gpu() -> dict[str, Any] | None:
    """Return name, compute capability (as in 90) and driver version of device 0; None without a GPU."""
    answer = subprocess.run([sys.executable, "-c", _ASK_GPU], capture_output=True, text=True, check=True)
    found: dict[str, Any] | None = json.loads(answer.stdout)
    return found


def environment(device: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return what a result depends on: GPU, driver, CPU, versions, the state of the checkout, the date.

    ``load`` is what others ask of the CPU: the load average of the last minute, before anything is measured.
    """
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "gpu": device,
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "system": f"{platform.system()} {platform.machine()}, {' '.join(platform.libc_ver())}",
        "python": platform.python_version(),
        "cupar": _checkout(),
        "versions": {project: _version(project) for project in PROJECTS},
    }


def _version(project: str) -> str | None:
    try:
        return metadata.version(project)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    try:
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def _checkout() -> str:
    """Return the commit of this checkout, and whether cupar/ differs from it."""

    def git(*arguments: str) -> str:
        answer = subprocess.run(
            ["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
        return answer.stdout.strip()

    try:
        return git("rev-parse", "--short", "HEAD") + (" with changes" * bool(git("status", "-s", "cupar")))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def slug(device: Mapping[str, Any] | None) -> str:
    """Return the GPU's name for a file name, ``"cpu"`` without one."""
    return re.sub(r"[^a-z0-9]+", "-", device["name"].lower()).strip("-") if device else "cpu"


# --- Numbers ---------------------------------------------------------------------------------------------


def summary(values: Sequence[float]) -> dict[str, Any]:
    """Return median, minimum and maximum of some samples, and the samples."""
    return {
        "median": statistics.median(values),
        "min": min(values),
        "max": max(values),
        "samples": [float(f"{value:.6g}") for value in values],
    }


def seconds(value: float) -> str:
    """Write a time with three digits that count."""
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if value >= scale:
            number = value / scale
            return f"{number:.{max(0, 2 - len(str(int(number))) + 1)}f} {unit}"
    return f"{value / 1e-9:.0f} ns"


def spread(values: Mapping[str, Any] | None) -> str:
    """Write a summary as ``median (min to max)``."""
    if values is None:
        return "-"
    return f"{seconds(values['median'])} ({seconds(values['min'])} to {seconds(values['max'])})"


# --- Output ----------------------------------------------------------------------------------------------


def print_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print columns, the first to the left and the others to the right."""
    lines = [list(headings), *map(list, rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    lines.insert(1, ["-" * width for width in widths])
    for first, *others in lines:
        cells = [text.rjust(width) for text, width in zip(others, widths[1:], strict=True)]
        print("  ".join([first.ljust(widths[0]), *cells]).rstrip())


def print_environment(facts: Mapping[str, Any]) -> None:
    """Print where a benchmark ran, in a few lines."""
    device = facts["gpu"]
    card = f"{device['name']} (sm_{device['cc']}, driver {device['driver']})" if device else "no GPU"
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    print(f"{facts['date']}, cupar {facts['cupar']}, Python {facts['python']}")
    print(f"{card}; {facts['cpu']}, {facts['cores']} cores, load {facts['load']}; {facts['system']}")
    print(versions)


def needed_gpu() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the GPU and the environment, which is printed; the program ends if there is no GPU, or no CuPy.

    What it times are the fastest kernels, and nothing is linked meanwhile, unless ``CUPAR_TIER`` says else.
    """
    device = gpu()
    facts = environment(device)
    print_environment(facts)
    if device is None:
        raise SystemExit("\nThere is no GPU here, so nothing is measured.")
    if not is_installed("cupy"):
        raise SystemExit("\nCuPy is not installed, so there are no arrays and nothing is measured.")
    os.environ.setdefault("CUPAR_TIER", "fast")
    return device, facts


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    """Write a result, and say where."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n")
    print(f"\nwritten to {path}")


# --- Plots -----------------------------------------------------------------------------------------------

SERIES = ("#76b900", "#4d8fc4", "#999999", "#d9822b")
# What changes in a dark theme. Pages and viewers that know none show the light one.
INK, PAPER, GRID = "#1f2328", "#ffffff", "#d0d7de"
DARK = {INK: "#e6edf3", PAPER: "#131416", GRID: "#3d444d"}
ABREAST = 3  # panels of lines
WIDTH = 7.2  # inches, like a page's text: a wider plot would be scaled down, and its text with it
FONTS = ["Segoe UI", "Helvetica Neue", "Arial", "DejaVu Sans", "sans-serif"]


@dataclass
class Bar:
    """One bar of each series, under a name.

    Attributes
    ----------
    name : str
    values : sequence of float or None
        One for each series, None where there is none.
    texts : sequence of str
        What stands behind each bar.
    color : int
        Index of the first one's colour.
    """

    name: str
    values: Sequence[float | None]
    texts: Sequence[str]
    color: int = 0


@dataclass
class Panel:
    """Horizontal bars on a common axis.

    Attributes
    ----------
    bars : list of Bar
        From top to bottom.
    unit : str
        What the axis shows.
    title : str
    series : sequence of str
        Their names, for a legend; one series needs none.
    line : float, optional
        Where a dashed line stands, to compare with.
    log : bool
    """

    bars: list[Bar]
    unit: str
    title: str = ""
    series: Sequence[str] = field(default_factory=lambda: [""])
    line: float | None = None
    log: bool = False

    @property
    def texts(self) -> list[str]:
        """What is written in it beside the axis."""
        return [text for bar in self.bars for text in (bar.name, *bar.texts) if text]


@dataclass
class Lines:
    """Curves over sizes that are powers of two, in a third of a page's width.

    Attributes
    ----------
    curves : mapping of str to sequence of pair of float
        Points by the name of the curve; some may have none.
    across, unit : str
        What the axes show.
    title : str
    line : float, optional
        Where a dashed line stands, to compare with.
    has_legend : bool
    """

    curves: Mapping[str, Sequence[tuple[float, float]]]
    across: str
    unit: str
    title: str
    line: float | None = None
    has_legend: bool = False

    @property
    def texts(self) -> list[str]:
        """What is written in it beside the axes."""
        return [self.title] if any(self.curves.values()) else []


def add_plot_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--plot``, for `plot_again`."""
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the plot of this JSON file and end")


def plot_again(
    path: Path, panels: Callable[[Mapping[str, Any]], tuple[str, Sequence[Panel | Lines]]]
) -> None:
    """Draw the plot of a JSON file beside it, without measuring anything."""
    print(plot(path, *panels(json.loads(path.read_text()))))


def plot(path: Path, title: str, panels: Sequence[Panel | Lines]) -> str:
    """Draw panels below each other, beside the JSON file that they are of; return what came of it."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("svg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except Exception as error:  # also one that was built for another NumPy
        return f"no plot: matplotlib cannot be imported ({type(error).__name__}: {error})"
    panels = [panel for panel in panels if panel.texts]
    if not panels:
        return "no plot: nothing was measured"
    logging.getLogger("matplotlib.font_manager").setLevel(logging.ERROR)  # of fonts that readers may have
    settings = {f"{name}.color": INK for name in ("text", "xtick", "ytick")}
    settings |= {"axes.labelcolor": INK, "axes.edgecolor": GRID, "grid.color": GRID}
    settings |= {"svg.fonttype": "none", "svg.hashsalt": path.stem, "font.sans-serif": FONTS}
    with matplotlib.rc_context(settings):
        rows = _rows(panels)
        heights = [max(map(_height, row)) for row in rows]
        figure = pyplot.figure(figsize=(WIDTH, 0.4 + sum(heights)), layout="constrained", facecolor=PAPER)
        figure.get_layout_engine().set(w_pad=0.12, h_pad=0.12)
        figure.suptitle(title, x=0.02, ha="left", fontsize=12, fontweight="bold")
        parts = figure.subfigures(len(rows), height_ratios=heights, squeeze=False, facecolor=PAPER)
        for part, row in zip(parts.flat, rows, strict=True):
            if isinstance(row[0], Lines):
                for axes, panel in zip(part.subplots(1, ABREAST), row, strict=False):
                    _draw_lines(axes, panel)
                for axes in part.axes[len(row) :]:
                    axes.remove()
            else:
                _draw(part.subplots(), row[0])
        picture = path.with_suffix(".svg")
        text = io.StringIO()
        figure.savefig(text, format="svg", metadata={"Date": None}, facecolor=PAPER)
        pyplot.close(figure)
    picture.write_text(_themed(text.getvalue()))
    return f"plotted to {picture}"


def _rows(panels: Sequence[Panel | Lines]) -> list[list[Panel | Lines]]:
    """Return what is beside each other: a few of lines, or one of bars."""
    rows: list[list[Panel | Lines]] = []
    for panel in panels:
        beside = rows[-1] if rows else []
        if isinstance(panel, Lines) and 0 < len(beside) < ABREAST and isinstance(beside[0], Lines):
            beside.append(panel)
        else:
            rows.append([panel])
    return rows


def _height(panel: Panel | Lines) -> float:
    if isinstance(panel, Lines):
        return 1.7
    return 0.9 + (0.18 + 0.14 * len(panel.series)) * len(panel.bars)


def _draw_lines(axes: Any, panel: Lines) -> None:
    for number, (name, points) in enumerate(panel.curves.items()):
        if points:
            axes.plot(*zip(*points, strict=True), linewidth=1.4, color=SERIES[number], label=name)
    if panel.line is not None:
        axes.axhline(panel.line, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9)
    axes.set_xscale("log", base=2)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_title(panel.title, loc="left", fontsize=8.5)
    axes.set_xlabel(panel.across, fontsize=8)
    axes.set_ylabel(panel.unit, fontsize=8)
    if panel.has_legend:
        axes.legend(frameon=False, fontsize=7)
    axes.set_facecolor(PAPER)
    axes.grid()
    axes.tick_params(labelsize=7.5)
    axes.spines[["top", "right"]].set_visible(False)


def _draw(axes: Any, panel: Panel) -> None:
    thickness = 0.8 / len(panel.series)
    for number, name in enumerate(panel.series):
        offset = (number - (len(panel.series) - 1) / 2) * thickness
        known = [(row, bar) for row, bar in enumerate(panel.bars) if bar.values[number] is not None]
        drawn = axes.barh(
            [row + offset for row, _ in known],
            [bar.values[number] for _, bar in known],
            thickness * 0.94,
            color=[SERIES[bar.color + number] for _, bar in known],
            label=name,
        )
        axes.bar_label(drawn, [bar.texts[number] for _, bar in known], padding=4, fontsize=9)
    if panel.line is not None:
        axes.axvline(panel.line, color=INK, linewidth=1, linestyle=(0, (4, 3)), zorder=0.9)
    if panel.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:,.6g}")
    if len(panel.series) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=len(panel.series), frameon=False)
    axes.set_title(panel.title, loc="left", fontsize=11)
    axes.set_yticks(range(len(panel.bars)), [bar.name for bar in panel.bars])
    axes.set_ylim(len(panel.bars) - 0.4, -0.6)  # from top to bottom
    axes.margins(x=0.17)
    axes.set_xlabel(panel.unit)
    axes.set_facecolor(PAPER)
    axes.grid(axis="x")
    axes.set_axisbelow(True)
    axes.tick_params(axis="y", length=0)
    axes.spines[["top", "right", "left"]].set_visible(False)


def _themed(svg: str) -> str:
    """Add a style sheet that changes colours where the reader's theme is dark."""
    rules = [
        f'[style*="{attribute}: {light}"] {{ {attribute}: {dark} !important }}'
        for light, dark in DARK.items()
        for attribute in ("fill", "stroke")
    ]
    sheet = "@media (prefers-color-scheme: dark) {\n" + "\n".join(rules) + "\n}"
    svg = "\n".join(line.rstrip() for line in svg.splitlines()) + "\n"
    return svg.replace("</style>", f"\n{sheet}\n</style>", 1)
