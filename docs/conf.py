"""How the documentation is built; `make docs` turns every warning into an error."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

from sklearn.exceptions import ConvergenceWarning

os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "src"))

import kernelmosaic  # noqa: E402

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
exclude_patterns = ["_build", "auto_examples/**/*.ipynb", "auto_examples/**/*.py", "auto_examples/**/*.md5"]
source_suffix = {".rst": "restructuredtext", ".md": "markdown"}

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["myst.header"]  # a page of a family starts where its reader is, not always at the first level

autosummary_generate = True
autodoc_typehints = "none"  # the docstrings say more than the annotations
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"/plot_",
    "ignore_pattern": r"/(?!plot_)[^/]*\.py$",
    "show_memory": False,
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
html_static_path: list[str] = []
