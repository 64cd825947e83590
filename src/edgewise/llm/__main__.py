"""`python -m edgewise.llm`: the commands of `edgewise llm`."""

import sys

from edgewise.cli import main

sys.exit(main(["llm", *sys.argv[1:]]))
