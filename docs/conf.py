"""How the documentation is built; `make docs` turns every warning into an error.

Builds need no network. On Read the Docs, and wherever the variable KERNELMOSAIC_INTERSPHINX is set,
names of other packages lead to their pages, whose lists are then downloaded.
"""

from __future__ import annotations

import inspect
import os
import re
import sys
import warnings
from html import escape
from pathlib import Path
from typing import Any

from docutils import nodes
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sphinx_gallery.sorting import ExplicitOrder

os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "src"), str(ROOT)]

import kernelmosaic  # noqa: E402
from tools import reference  # noqa: E402

project = "kernelmosaic"
author = "The kernelmosaic developers"
project_copyright = "The kernelmosaic developers"
version = release = kernelmosaic.__version__
SITE = "https://kernelmosaic.readthedocs.io/en/stable/"
SOURCE = "https://github.com/kernelmosaic/kernelmosaic"
development = os.environ.get("READTHEDOCS_VERSION") == "latest"

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.linkcode",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = [
    "_build",
    "_templates",
    *(f"auto_examples/**/*.{ending}" for ending in ("ipynb", "py", "md5")),
]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_substitutions = {"version": release}
myst_heading_anchors = 3
suppress_warnings = [
    "myst.header"
]  # a page of a family starts where its reader is, not always at the first level

nitpicky = True  # a name that leads nowhere is an error, but for other people's, which are looked up with a network
nitpick_ignore_regex = [("py:.*", r"(sklearn|numpy|scipy|matplotlib|pandas)\..*")]
intersphinx_mapping: dict[str, tuple[str, None]] = {}
if {"READTHEDOCS", "KERNELMOSAIC_INTERSPHINX"} & set(os.environ):
    intersphinx_mapping = {
        "python": ("https://docs.python.org/3", None),
        "numpy": ("https://numpy.org/doc/stable", None),
        "scipy": ("https://docs.scipy.org/doc/scipy", None),
        "sklearn": ("https://scikit-learn.org/stable", None),
        "matplotlib": ("https://matplotlib.org/stable", None),
        "pandas": ("https://pandas.pydata.org/docs", None),
    }

autosummary_generate = True
toc_object_entries_show_parents = "hide"
autodoc_typehints = "none"  # the docstrings say more than the annotations
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

#: Examples in the order of the gallery: tasks of users first, then kinds of data, methods and
#: solvers.
EXAMPLES = [
    "plot_fusing_views.py",
    "plot_missing_omics.py",
    "plot_which_kernels_are_real.py",
    "plot_which_width.py",
    "plot_survival.py",
    "plot_without_labels.py",
    "plot_encoding_model.py",
    "plot_gene_sets.py",
    "plot_molecules.py",
    "plot_sequences.py",
    "plot_pairs.py",
    "plot_precomputed.py",
    "plot_class_wise_weights.py",
    "plot_gates_in_the_plane.py",
    "plot_regression_with_gates.py",
    "plot_combined_kernel.py",
    "plot_discriminant_projection.py",
    "plot_cost_conscious.py",
    "plot_response_surface.py",
    "plot_convergence.py",
    "*",
]
sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "within_subsection_order": ExplicitOrder(EXAMPLES),
    "ignore_pattern": r"(^|/)(?!plot_)[^/]*\.py$",
    "show_memory": False,
    "write_computation_times": False,
    "download_all_examples": False,
    "abort_on_example_error": True,
    "backreferences_dir": "auto_examples/backreferences",
    "doc_module": ("kernelmosaic",),
    "reference_url": {"kernelmosaic": None},
}
warnings.filterwarnings("ignore", category=ConvergenceWarning)

html_theme = "pydata_sphinx_theme"
html_title = "kernelmosaic"
html_baseurl = os.environ.get("READTHEDOCS_CANONICAL_URL", SITE)
html_favicon = "_static/logo.svg"
html_theme_options = {
    "logo": {
        "image_light": "_static/logo.svg",
        "image_dark": "_static/logo.svg",
        "text": "kernelmosaic",
    },
    "github_url": SOURCE,
    "navbar_persistent": ["search-button"],
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "navbar_end": ["version-switcher", "theme-switcher", "navbar-icon-links"],
    # The versions of the newest release, whichever is read; browsers fetch them, builds do not.
    "switcher": {
        "json_url": f"{SITE}_static/switcher.json",
        "version_match": "main" if development else release,
    },
    "check_switcher": False,
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


def linkcode_resolve(domain: str, info: dict[str, str]) -> str | None:
    """Return where the source of a class, method or function is; fitted attributes have none."""
    value: Any = sys.modules[info["module"]]
    try:
        for part in info["fullname"].split("."):
            value = getattr(value, part)
        value = inspect.unwrap(getattr(value, "fget", value))
        path = Path(inspect.getsourcefile(value) or "").resolve().relative_to(ROOT)
        lines, first = inspect.getsourcelines(value)
    except (AttributeError, OSError, TypeError, ValueError):
        return None
    commit = "main" if development else f"v{release}"
    return f"{SOURCE}/blob/{commit}/{path.as_posix()}#L{first}-L{first + len(lines) - 1}"


def describe(app: Any, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Say what a page is about to search engines, and to those who show a preview of a link to
    it."""
    if doctree is None:
        return
    paragraphs = doctree.findall(nodes.paragraph)
    said = (one.astext() for one in paragraphs if one.parent.tagname in ("section", "desc_content"))
    text = " ".join(next(said, project).split())
    text = text if len(text) <= 200 else f"{text[:197].rsplit(' ', 1)[0]} …"
    title = re.sub("<[^>]+>", "", context["title"])
    tags = {
        "og:title": title if title == project else f"{title} – {project}",
        "og:description": text,
        "og:type": "website",
        "og:site_name": project,
        "og:url": f"{html_baseurl}{page}.html",
        "og:image": f"{html_baseurl}_static/preview.png",
        "og:image:alt": "kernelmosaic: multiple kernel learning with scikit-learn's interface",
    }
    written = [
        f'<meta property="{key}" content="{escape(value)}" />' for key, value in tags.items()
    ]
    written += ['<meta name="twitter:card" content="summary_large_image" />']
    written += [f'<meta name="description" content="{escape(text)}" />']
    context["metatags"] = "\n".join([context.get("metatags", ""), *written])


def skip_inherited(
    app: Any, what: str, name: str, member: Any, skip: bool, options: Any
) -> bool | None:
    """Leave out what scikit-learn brings: its own pages describe it, and its docstrings refer to
    them."""
    home = getattr(getattr(member, "fget", member), "__module__", "") or ""
    return True if home.startswith("sklearn") or name.endswith("_request") else None


def escape_bars(
    app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]
) -> None:
    """Keep |y − f(x)| what it is: bars would name a substitution. Code is left alone."""
    for i, line in enumerate(lines):
        if not line.lstrip().startswith((">>>", "...")):
            parts = re.split("(``.*?``)", line)
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[i] = "".join(parts)


def group_parameters(
    app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]
) -> None:
    """List everyday parameters of an estimator before expert ones, each with its explanation."""
    if what == "class" and issubclass(member, BaseEstimator) and ".kernels." not in name:
        lines[:] = reference.grouped(member, lines)


def place_groups(
    app: Any, what: str, name: str, member: Any, options: Any, lines: list[str]
) -> None:
    """Put the expert parameters after the everyday ones; numpydoc puts them after the attributes,
    by another name."""
    fields = [i for i, line in enumerate(lines) if re.match(r":[A-Z].*:$", line)]
    begin = next((i for i in fields if lines[i] == ":Other Parameters:"), None)
    if begin is not None:
        end = next(
            (i for i in range(begin + 1, len(lines)) if lines[i] and not lines[i].startswith(" ")),
            len(lines),
        )
        moved = [":Expert parameters:", *lines[begin + 1 : end]]
        del lines[begin:end]
        after = fields[1] if fields[1] < begin else begin
        lines[after:after] = moved


def setup(app: Any) -> None:
    app.connect("html-page-context", describe)
    app.connect("autodoc-process-docstring", group_parameters, priority=90)
    app.connect("autodoc-process-docstring", place_groups, priority=900)
    app.connect("autodoc-skip-member", skip_inherited)
    app.connect("autodoc-process-docstring", escape_bars, priority=100)  # before numpydoc reads it
