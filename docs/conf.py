"""The documentation site: `make docs` builds it into build/site. Nothing in it is loaded from the network."""

from __future__ import annotations

import sys
from pathlib import Path

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

import curvedp  # noqa: E402

project = "curvedp"
author = "the authors of curvedp"
version = release = curvedp.__version__
language = "en"

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "sphinx.ext.mathjax",
    "sphinx-mathjax-offline",
    "sphinx_design",
    "sphinx_copybutton",
    "commands",
    "names",
    "json_schema",
    "outside",
]
exclude_patterns = ["_ext", "figures", "gallery", "sg_execution_times.rst"]
html_static_path = ["_static"]
html_css_files = ["site.css"]
default_role = "code"
smartquotes = False  # --option stays --option

myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 3
myst_heading_slug_func = "anchors.slug"
myst_links_external_new_tab = False
myst_number_code_blocks: list[str] = []

numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_default_options = {"exclude-members": "set_fit_request, set_score_request, set_predict_request"}
add_module_names = False
toc_object_entries_show_parents = "hide"
python_use_unqualified_type_names = True

copybutton_exclude = ".linenos, .gp, .go"
highlight_language = "text"  # indented blocks are formulas, tables and output; code has a fence with its name

html_theme = "pydata_sphinx_theme"
html_title = "curvedp"
html_show_sourcelink = False
html_show_sphinx = False
html_theme_options = {
    "logo": {"text": "curvedp"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "navbar_end": ["theme-switcher"],
    "navigation_with_keys": False,
    "show_toc_level": 2,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
    "back_to_top_button": False,
}
html_sidebars = {"index": [], "start": []}
html_context = {"default_mode": "auto"}
copyright = "the authors of curvedp, Apache-2.0"

if any((HERE / "gallery").glob("plot_*.py")):
    extensions.append("sphinx_gallery.gen_gallery")
    sphinx_gallery_conf = {
        "examples_dirs": "gallery",
        "gallery_dirs": "auto_gallery",
        "filename_pattern": r"plot_",
        "within_subsection_order": "FileNameSortKey",
        "abort_on_example_error": True,
        "parallel": 2,
        "show_memory": False,
        "image_scrapers": ("matplotlib",),
        "reset_modules": ("matplotlib", "seaborn"),
        "download_all_examples": False,
        "remove_config_comments": True,
        "write_computation_times": False,
        "show_signature": False,
    }
    exclude_patterns += ["auto_gallery/*.ipynb", "auto_gallery/*.py", "**/sg_execution_times.rst"]
suppress_warnings = ["config.cache"]  # sphinx-gallery keeps functions in its configuration


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)
    app.extensions["sphinx-mathjax-offline"].parallel_read_safe = True  # it copies files when all is written
