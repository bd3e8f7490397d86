"""Settings of the documentation site: `make site` builds it from the documents beside this file."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

project = "perfkit"
author = "The perfkit authors"
release = importlib.metadata.version("perfkit")
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "reference_pages"]
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = f"perfkit {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
html_show_copyright = False
smartquotes = False
html_copy_source = False
# Links to a heading name it as GitHub does.
myst_heading_anchors = 3
# Documents begin with the heading that suits a reader of one page.
suppress_warnings = ["myst.header"]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
# A link to nothing within the site is a warning anyway; `make links LINKS=all` asks addresses outside.
nitpicky = False
linkcheck_timeout = 20
linkcheck_workers = 4
