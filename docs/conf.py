"""How `make docs` builds the site from these pages: Sphinx, MyST (Markdown) and Furo."""

project = "edgewise"
author = "The edgewise authors"
extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
source_suffix = {".md": "markdown"}
html_theme = "furo"
html_title = "edgewise"
html_copy_source = False
html_static_path = ["_static"]
html_js_files = ["versions.js"]
html_css_files = ["versions.css"]
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#0b6e5f", "color-brand-content": "#0b6e5f"},
    "dark_css_variables": {"color-brand-primary": "#4fd1b5", "color-brand-content": "#4fd1b5"},
}
exclude_patterns = ["images/README.md"]
