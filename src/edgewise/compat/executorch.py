"""Importing this serves ExecuTorch's import paths for the rest of the process."""

from edgewise.compat.importer import install

install()
