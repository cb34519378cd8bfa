"""``cupar run``: a program as it is, with cupar.compute in place of cuda.compute."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

import pytest

from cupar._ahead.watch import summed

PROGRAM = """
import sys
import threading
import numpy as np
import cuda.compute
import cuda.compute as short
import cuda.compute.iterators
from cuda.compute import OpKind, ProxyArray, ProxyValue, make_reduce_into
from cuda.compute.op import RawOp
from cuda.compute.types import int32

assert __name__ == "__main__" and sys.modules["__main__"].__dict__ is globals()
assert short is cuda.compute and cuda.compute.__spec__.name == cuda.compute.__name__ == "cupar.compute"
assert cuda.compute.iterators is sys.modules["cuda.compute.iterators"]
assert cuda.compute.iterators is sys.modules["cupar.compute.iterators"]
assert int32 is cuda.compute.types.int32 and RawOp is cuda.compute.op.RawOp
try:
    import cuda.compute._made
except ModuleNotFoundError as error:
    assert error.name == "cuda.compute._made" and "is private to cuda.compute" in str(error)

def ask():
    given = {"d_in": ProxyArray("f4"), "d_out": ProxyArray("f4"), "h_init": ProxyValue("f4")}
    return make_reduce_into(**given, op=OpKind.PLUS, compute_capability=90)

threading.Timer(0.2, ask).start()
print(json_like := sys.argv[1:])
"""


@pytest.fixture
def run(tmp_path):
    def run(*words, status=0, **named):
        environment = {
            **os.environ,
            "CUPAR_CACHE_DIR": str(tmp_path / "cache"),
            **named.pop("environment", {}),
        }
        command = [sys.executable, "-m", "cupar", "run", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment, **named)
        assert done.returncode == status, done.stderr
        return done

    return run


@pytest.fixture
def program(tmp_path):
    def write(text, name="program.py"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        return path

    return write


def test_a_program_and_what_it_asked_for(run, program):
    path = program(PROGRAM)
    first = run(path, "--json", "-m", "x")
    assert first.stdout == "['--json', '-m', 'x']\n"
    assert first.stderr.startswith("cupar: 1 built and 0 linked in ") and "; 0 found; " in first.stderr
    second = run("--json", path)  # what is asked for when the main thread has ended is seen, too
    told = json.loads(second.stdout)
    assert (told["status"], told["built"], told["disk"]) == (0, 0, 1)
    assert told["saved_seconds"] > 0 == told["seconds"]
    assert run("--quiet", path).stderr == ""


def test_a_module(run, program, tmp_path):
    (tmp_path / "package").mkdir()
    program("import sys, package\nassert sys.argv[1:] == ['-q', '--', 'a']", "package/__main__.py")
    program("from cuda.compute import reduce_into", "package/__init__.py")
    done = run("-m", "package", "-q", "--", "a")
    assert done.stderr == "cupar: nothing was asked for\n"
    assert run("-mpackage", "-q", "--", "a").stderr == done.stderr


# --- As python does

SHOWN = """
import atexit, dataclasses, multiprocessing, os, pickle, sys, threading

@dataclasses.dataclass
class Point:
    x: int = 3

def square(x):
    return x * x

def show(*what):
    print(*what, flush=True)

def late(name):
    main = sys.modules["__main__"]
    show(name, main is not None and main.__dict__ is globals(), pickle.loads(pickle.dumps(Point(4))))
    if sys.argv[0].endswith(("folder", ".zip")):  # whose path is there
        import beside_it
        show(beside_it.__name__)

if __name__ == "__main__":
    def after():
        threading.main_thread().join()
        late("thread")
    threading.Thread(target=after).start()
    atexit.register(late, "atexit")
    for name in sorted(vars()):
        if name.startswith("__"):
            value = vars()[name]
            own = getattr(value, "__name__", None) or getattr(value, "name", None)
            show(name, own or type(value), value if isinstance(value, str) else "")
    show(sys.argv, sys.path, sys.orig_argv, sys.flags, sys.warnoptions, sys._xoptions)
    show(sorted(os.environ.items()), sys.stdout.write_through, sys.excepthook)
    if "spawn" in sys.argv:
        for method in ("spawn", "forkserver"):
            with multiprocessing.get_context(method).Pool(1) as pool:
                show(pool.map(square, [1, 2]), pool.apply(Point))
    if "-" not in sys.argv[:1]:
        show(sys.stdin.read())
    if "fork" in sys.argv:
        if not (child := os.fork()):
            sys.exit(3)
        show(os.waitpid(child, 0)[1])
"""
ERROR = """
def f():
    raise {}

f()
"""
INTERRUPT = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell's background jobs ignore
def f():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(60)
f()
"""


RUN = [sys.executable, "-m", "cupar", "run", "--quiet", "--no-children"]


@pytest.fixture
def same(tmp_path, program):
    """Return what runs a command line of python's alone and under cupar, and compares all that is seen."""
    program(SHOWN)
    program(SHOWN, "folder/__main__.py")
    program("", "folder/beside_it.py")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "link.py").symlink_to("../program.py")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as file:
        file.writestr("__main__.py", SHOWN)
        file.writestr("beside_it.py", "")

    def same(*words, stdin="typed\n", **environment):
        given = {"input": stdin, "capture_output": True, "text": True, "cwd": tmp_path, "timeout": 120}
        environment = {**os.environ, "CUPAR_CACHE_DIR": str(tmp_path / "cache"), **environment}
        alone, under = (
            subprocess.run([*command, *words], env=environment, **given)
            for command in ([sys.executable], RUN)
        )
        assert under.stdout == alone.stdout
        assert under.stderr == alone.stderr
        assert under.returncode == alone.returncode
        return alone

    return same


@pytest.mark.parametrize(
    "words",
    [
        "program.py --json -m x",
        "-Wignore::DeprecationWarning program.py spawn fork",  # of forks where there are threads
        "-m program a",
        "-c import\tprogram,sys;print(sys.argv,sys.path,sys.orig_argv,vars()) -x",
        "folder a",
        "packed.zip",
        "links/link.py",
        "-O -W error::UserWarning -Xdev -X name=1 -u program.py",
        "-bb -sB -- program.py",
        "-m folder",
    ],
)
def test_a_program_sees_what_it_sees_under_python(same, words):
    done = same(*(word.replace("\t", " ") for word in words.split(" ")))
    assert done.returncode == 0, done.stderr


def test_a_program_from_standard_input(same):
    assert same("-", "a", stdin=SHOWN).returncode == 0
    assert same("-i", stdin="x = 3\nprint(x)\n1 / 0\n").stdout == "3\n"
    assert same("-i", "-c", "x = 4", stdin="print(x)\n").stdout == "4\n"


def test_what_the_environment_says_to_python(same, run, program, tmp_path):
    program(
        "import sys\nsys.path.append('mine')\nimport os\nos.environ['MINE'] = '1'", "site/sitecustomize.py"
    )
    same("program.py", PYTHONPATH=f"{tmp_path / 'site'}{os.pathsep}", PYTHONUNBUFFERED="1")
    same("program.py", PYTHONPATH="")
    program("import nowhere_at_all", "site/sitecustomize.py")
    done = run("--quiet", "-c", "print(1)", environment={"PYTHONPATH": str(tmp_path / "site")})
    assert done.stdout == "1\n" and done.stderr.count("named 'nowhere_at_all'") == 2  # for cupar's start, too


@pytest.mark.parametrize(
    "end",
    [
        *(
            "sys.exit()",
            "sys.exit(7)",
            "sys.exit('no good')",
            "sys.exit(2**70)",
            "sys.exit(-1)",
            "sys.exit(2.5)",
        ),
        *("raise SystemExit(None)", "raise SystemExit(True)", "os._exit(5)", "os.abort()"),
        "os.kill(os.getpid(), signal.SIGTERM)",
        "def f(:",
    ],
)
def test_how_a_program_ends(same, program, end):
    program(f"import os, signal, sys\n{end}", "end.py")
    same("end.py")


@pytest.mark.parametrize(
    "error",
    ["ValueError('wrong')", "BaseException('wrong')", "GeneratorExit", "KeyboardInterrupt", "SystemError"],
)
def test_an_error_is_shown_as_python_does(same, program, error):
    program(ERROR.format(error), "error.py")
    done = same("error.py")
    assert done.stderr.count("File") == 2 and done.returncode


def test_an_interrupt_ends_it_with_its_own_traceback(same, program):
    program(INTERRUPT, "interrupt.py")
    done = same("interrupt.py")
    assert done.returncode == -signal.SIGINT and "KeyboardInterrupt" in done.stderr


def test_what_python_cannot_run(same):
    assert same("nowhere.py").returncode == 2
    assert same("-m", "nowhere").returncode == 1
    assert same("-Z", "program.py").returncode == 2


def test_options_of_python_may_stand_before_cupar(program, tmp_path):
    program("import sys; print(sys.flags.optimize, sys.warnoptions, sys._xoptions)")
    command = [sys.executable, "-W", "error", "-Xa=1", "-OOm", "cupar", "run", "--quiet", "-Xb", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout == "2 ['error'] {'a': '1', 'b': True}\n"


def test_importing_numpy_waits_for_the_program(run, program):
    path = program(
        "import sys\nassert 'numpy' not in sys.modules\nassert not {'json', 'logging'} & set(sys.modules)"
    )
    assert run(path).stderr == "cupar: nothing was asked for\n"


def test_a_forked_child_tells_nothing(run, program):
    path = program("import os\nif os.fork():\n    os.wait()\n")
    assert run(path).stderr == "cupar: nothing was asked for\n"


def test_documents(run, program):
    told = json.loads(run("--json", program("print('hello')\nraise SystemExit(4)"), status=4).stdout)
    assert told == {
        **{"status": 4, "memory": 0, "disk": 0, "linked": 0, "built": 0},
        **{"seconds": 0, "saved_seconds": 0},
    }
    done = run(
        "--json", program("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)"), status=-signal.SIGTERM
    )
    assert json.loads(done.stdout)["status"] == -signal.SIGTERM


@pytest.mark.parametrize("received", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_a_program_that_is_waited_for(program, tmp_path, received):
    heeded = "import signal, sys, time\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    text = "open('begun', 'w')\ntry:\n    time.sleep(60)\nfinally:\n    open('ended', 'w')\n"
    words = ["run", "--json", str(program(heeded + text))]
    code = f"{heeded}from cupar._cli import main\nsys.exit(main.main({words}))"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, stderr=subprocess.PIPE)
    until = time.monotonic() + 60
    while not (tmp_path / "begun").exists() and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(received)
    process.communicate(timeout=60)
    assert process.returncode == (130 if received == signal.SIGINT else -received)
    assert (tmp_path / "ended").exists() == (received == signal.SIGINT)


def test_mistakes(run, program, tmp_path):
    assert "name a script" in run(status=2).stderr
    assert "unrecognized arguments: --fast" in run("--fast", program(""), status=2).stderr
    refused = run("-OI", program(""), status=2, environment={"TMPDIR": str(tmp_path)})
    assert "error: -I: python would not import" in refused.stderr
    assert not [*tmp_path.glob("cupar-run-*")]


def test_what_was_imported_before_is_not_replaced():
    code = """
import sys, types
sys.modules["cuda.compute"] = types.ModuleType("cuda.compute")
from cupar._cli import alias
try:
    alias.replace()
except RuntimeError as error:
    assert "is imported already" in str(error)
else:
    raise AssertionError
del sys.modules["cuda.compute"]
alias.replace()
alias.replace()
assert sum(isinstance(each, alias._Finder) for each in sys.meta_path) == 1
import cuda.pathfinder, cuda.compute
assert cuda.compute.__name__ == "cupar.compute" and cuda.pathfinder.__name__ == "cuda.pathfinder"
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_recording_goes_on(run, program, tmp_path):
    listed = tmp_path / "asked.jsonl"
    run(program(PROGRAM), environment={"CUPAR_RECORD": str(listed)})
    assert listed.read_text().count('"reduce_into"') == 1


# --- Processes of a program

STARTS = """
import multiprocessing, os, signal, subprocess, sys

def ask(*_):
    from cuda.compute import OpKind, ProxyArray, ProxyValue, make_reduce_into

    given = {"d_in": ProxyArray("f4"), "d_out": ProxyArray("f4"), "h_init": ProxyValue("f4")}
    return make_reduce_into(**given, op=OpKind.PLUS, compute_capability=90).__class__.__module__.split(".")[0]

def ask_and_die():
    ask()
    os.kill(os.getpid(), signal.SIGKILL)

if __name__ == "__main__":
    found = [ask()]
    for method in sys.argv[1:]:
        if method == "subprocess":
            code = "import program; print(program.ask())"
            done = subprocess.run([sys.executable, "-c", code], env={**os.environ, "MORE": "1"}, stdout=-1)
            found.append(done.stdout.decode().strip())
        elif method == "os.fork":
            if not (child := os.fork()):
                ask()
                os._exit(0)
            os.waitpid(child, 0)
        elif method == "execv" and not os.environ.get("AGAIN"):
            os.environ["AGAIN"] = "1"
            os.execv(sys.executable, [sys.executable, *sys.argv])
        elif method == "killed":
            process = multiprocessing.get_context("spawn").Process(target=ask_and_die)
            process.start()
            process.join()
        elif method != "execv":
            with multiprocessing.get_context(method).Pool(1) as pool:
                found += pool.map(ask, [0])
    print(*found)
"""


def counted(done):
    """Return the numbers of the line at the end: built, found and in memory."""
    line = done.stderr.splitlines()[-1]
    return tuple(map(int, re.search(r"cupar: (\d+) built .*; (\d+) found.*; (\d+) in memory", line).groups()))


@pytest.fixture
def temporary():
    """A folder for temporary files whose name is short, as names of sockets must be."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def test_new_processes_have_cupar_and_are_counted(run, program, tmp_path, temporary):
    path = program(STARTS)
    own = {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
    done = run(path, "subprocess", "spawn", "forkserver", "killed", environment=own)
    assert done.stdout.split() == ["cupar"] * 4
    assert counted(done) == (1, 4, 0)
    assert not [*temporary.glob("cupar-run-*")]
    done = run("--json", path, "subprocess", "os.fork", environment=own)
    told = json.loads(done.stdout)
    assert (told["built"], told["disk"] + told["memory"]) == (0, 3)
    assert done.stderr.split() == ["cupar"] * 2
    assert counted(run(path, "execv", environment=own)) == (0, 2, 0)
    assert not [*temporary.glob("cupar-run-*")]


def test_a_program_runs_where_there_is_no_place_for_temporary_files(program, tmp_path):
    path = program("print('it runs')")
    start = "import runpy, tempfile; tempfile.tempdir = '/nowhere'; runpy.run_module('cupar', alter_sys=True)"
    command = [sys.executable, "-c", start.replace("'cupar'", "'cupar', run_name='__main__'"), "run", path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=True)
    assert done.stdout == "it runs\n"
    assert re.fullmatch("cupar: requests are not counted: .*/nowhere.*\n", done.stderr)


def test_damaged_counts_are_left_out(tmp_path):
    line = b'{"stats": {"memory": 1, "disk": 0, "linked": 2, "built": 0}}\n'
    for number, damaged in enumerate((line[:20], line[:-30] + line, b"\0" * 40, b"\xff\xfe{", b"")):
        (tmp_path / f"{number}-1").write_bytes(line + damaged)
    assert str(summed(str(tmp_path))) == "0 built and 10 linked in 0.0 s; 0 found; 5 in memory"


def test_workers_of_pytest_have_cupar(run, program, tmp_path):
    program(STARTS)
    program("import program\ndef test_it(): assert program.ask() == 'cupar'", "test_it.py")
    path = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    own = {"PYTHONPATH": path, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    words = ["-m", "pytest", "-q", "-p", "xdist", "-n1", "-p", "no:cacheprovider", "test_it.py"]
    done = run(*words, environment=own)
    assert "1 passed" in done.stdout
    assert counted(done) == (1, 0, 0)


def test_children_may_be_left_alone(run, program):
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    shown = "import os, sys; print('cupar' in sys.modules, '_CUPAR_STARTED' in os.environ)"
    assert run("--quiet", "--no-children", "-c", code, shown).stdout == "False False\n"
    assert run("--quiet", "-c", code, shown).stdout == "True True\n"
    left = run("--quiet", "-c", "import os; os.environ['_CUPAR_STARTED'] = 'another'\n" + code, shown)
    assert left.stdout == "False True\n", "an interpreter of another environment"


def test_the_users_own_start_is_imported_in_children(run, program, tmp_path):
    program("import builtins\nbuiltins.mine = 1", "site/sitecustomize.py")
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'print(mine)'])"
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, sys.path)])
    assert run("-c", code, environment={"PYTHONPATH": path}).stdout == "1\n"
