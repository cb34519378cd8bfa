"""The Array API's own tests of what `cupar.arrays` has; what the library itself fails is not counted.

CUPAR_ARRAY_API_TESTS says where they are: a checkout of data-apis/array-api-tests with its submodule. On a
GPU, CUPAR_OVERLAID says with which library, as in ``array_api_compat.cupy``.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import cupar

FOLDER = os.environ.get("CUPAR_ARRAY_API_TESTS")
LIBRARY = os.environ.get("CUPAR_OVERLAID", "numpy")
EXAMPLES = os.environ.get("CUPAR_ARRAY_API_EXAMPLES", "10")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not FOLDER, reason="CUPAR_ARRAY_API_TESTS does not say where the Array API's tests are"
    ),
]


def run(module, tmp_path, *options):
    """Run the tests of a namespace; return what pytest says."""
    tests, package = Path(__file__).parents[1], Path(cupar.__file__).parents[1]
    environment = {
        **os.environ,
        "ARRAY_API_TESTS_VERSION": "2024.12",
        "ARRAY_API_TESTS_MODULE": module,
        "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": os.pathsep.join([str(package), str(tests), os.environ.get("PYTHONPATH", "")]),
    }
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_ADDOPTS"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--disable-warnings"]
    hypothesis = ["--disable-deadline", "--derandomize", f"--max-examples={EXAMPLES}"]
    done = subprocess.run(
        [*command, *hypothesis, *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=FOLDER,
        env=environment,
    )
    return done.stdout + done.stderr


def failed(text):
    return set(re.findall(r"^(?:FAILED|ERROR) (\S+)", text, re.MULTILINE))


def test_the_functions_that_there_are_do_what_the_array_api_says(tmp_path):
    from support import overlaid

    collected = run("support.overlaid", tmp_path, "--collect-only", "array_api_tests")
    names = "|".join(overlaid.NAMES)
    general = "func_signature|empty_arrays|nan_propagation"
    each = rf"test_(?:{names})(?:_[a-z]+)*|test_(?:{general})\[(?:{names})\]"
    wanted = re.compile(rf"^array_api_tests\S*::(?:{each})$")
    tests = [line for line in collected.splitlines() if wanted.match(line)]
    assert len(tests) > len(overlaid.NAMES), collected[-2000:]
    found = run("support.overlaid", tmp_path, *tests)
    assert re.search(r"\d+ passed", found), found[-5000:]
    own = failed(found)
    if own:
        own -= failed(run(LIBRARY, tmp_path, *sorted(own)))
    assert own == set(), found[-20000:]
