"""Sphinx makes a site of these pages and the docstrings: ``python -m sphinx -W -b html docs docs/_build``.

No GPU is needed, and nothing is fetched from the network.
"""

import argparse
import os
import tempfile
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from sphinx.application import Sphinx

import cupar
from cupar._cli import main

project = "cupar"
author = "The cupar authors"
version = release = cupar.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_design"]
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["_build"]

# Notebooks are run as the site is built, each as on a machine where nothing is built yet.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 600
empty_cache = tempfile.TemporaryDirectory(prefix="cupar-")
os.environ.update(CUPAR_CACHE_DIR=empty_cache.name, CUPAR_PROGRESS="0")

html_theme = "furo"
html_title = f"cupar {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

myst_heading_anchors = 3

default_role = "py:obj"  # what docstrings put between single backticks
python_use_unqualified_type_names = True
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say more: shapes, dtypes and units
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

# Help texts wrap at the terminal's width less two, and newer Pythons colour them.
os.environ.update(COLUMNS="80", NO_COLOR="1")


class CommandHelp(Directive):
    """``{cupar-help} cache list``: what ``cupar cache list --help`` prints."""

    optional_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return the text as a literal block."""
        parser = main._parser()
        for word in self.arguments[0].split() if self.arguments else ():
            parser = subcommands(parser)[word]
        text = parser.format_help()
        return [nodes.literal_block(text, text, language="text")]


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the parsers of a parser's commands by name."""
    (found,) = (each for each in parser._actions if isinstance(each, argparse._SubParsersAction))
    choices: dict[str, argparse.ArgumentParser] = found.choices
    return choices


def without_constructor(app: Sphinx, what: str, name: str, obj: Any, *_: Any) -> tuple[str, str] | None:
    """Show no signature of a class that users do not construct, which says so by having no parameters."""
    return ("", "") if what == "class" and "Parameters\n" not in (obj.__doc__ or "") else None


def setup(app: Sphinx) -> dict[str, Any]:
    """Register what is of this site alone."""
    app.connect("autodoc-process-signature", without_constructor)
    app.add_directive("cupar-help", CommandHelp)
    return {"parallel_read_safe": True}
