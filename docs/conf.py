"""How the documentation is built; `make docs` turns every warning into an error."""

from __future__ import annotations

import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning

os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import kernelmosaic  # noqa: E402
from tools import reference  # noqa: E402

project = "kernelmosaic"
author = "The kernelmosaic developers"
project_copyright = "The kernelmosaic developers"
version = release = kernelmosaic.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "_templates", *(f"auto_examples/**/*.{ending}" for ending in ("ipynb", "py", "md5"))]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"version": release}
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a page of a family starts where its reader is, not always at the first level

nitpicky = True  # a name that leads nowhere is an error, but for other people's, which are not looked up
nitpick_ignore_regex = [("py:.*", r"(sklearn|numpy|scipy|matplotlib|pandas)\..*")]

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say more than the annotations
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "backreferences_dir": None,
}
warnings.filterwarnings("ignore", category=ConvergenceWarning)

html_theme = "pydata_sphinx_theme"
html_title = "kernelmosaic"
html_theme_options = {
    "show_toc_level": 2,
    "navigation_with_keys": False,
    "header_links_before_dropdown": 6,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_sidebars = {"index": []}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["site.css"]


def skip_inherited(app: Any, what: str, name: str, member: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what scikit-learn brings: its own pages describe it, and its docstrings refer to them."""
    home = getattr(getattr(member, "fget", member), "__module__", "") or ""
    return True if home.startswith("sklearn") or name.endswith("_request") else None


def escape_bars(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Keep |y − f(x)| what it is: bars would name a substitution. Code is left alone."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split("(``.*?``)", line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[i] = "".join(parts)


def group_parameters(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """List everyday parameters of an estimator before expert ones, each with its explanation."""
    if what == "class" and issubclass(member, BaseEstimator) and ".kernels." not in name:
        lines[:] = reference.grouped(member, lines)


def place_groups(app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]) -> None:
    """Put the expert parameters after the everyday ones; numpydoc puts them after the attributes, by another name."""
    fields = [i for i, line in enumerate(lines) if re.match(r":[A-Z].*:$", line)]
    begin = next((i for i in fields if lines[i] == ":Other Parameters:"), None)
    if begin is not None:
        end = next((i for i in range(begin + 1, len(lines)) if lines[i] and not lines[i].startswith(" ")), len(lines))
        moved = [":Expert parameters:", *lines[begin + 1 : end]]
        del lines[begin:end]
        after = fields[1] if fields[1] < begin else begin
        lines[after:after] = moved


def setup(app: Any) -> None:
    app.connect("autodoc-process-docstring", group_parameters, priority=90)
    app.connect("autodoc-process-docstring", place_groups, priority=900)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", escape_bars, priority=100)  # before numpydoc reads it
