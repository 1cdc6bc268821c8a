"""Sphinx's configuration of the site: the project's Markdown as it lies in the repository, and the API from docstrings.

`make docs` copies the Markdown and this folder into one place and builds there.
"""

import ringup

project = "ringup"
author = "the ringup developers"
copyright = f"2026, {author}"
version = release = ringup.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.viewcode"]
myst_heading_anchors = 3
# links between Markdown files name files, `docs/driver.md`; the site has pages of the same names
suppress_warnings = ["ref.python", "myst.xref_missing", "misc.highlighting_failure", "myst.header"]
exclude_patterns = ["docs/site", "build"]
html_theme = "furo"
html_title = f"ringup {release}"
autodoc_default_options = {"members": True, "show-inheritance": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_preserve_defaults = True
default_role = "code"  # docstrings name code between single backticks
nitpicky = False
