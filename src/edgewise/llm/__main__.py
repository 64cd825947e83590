"""`python -m edgewise.llm`."""

import sys

from edgewise.llm.cli import main

sys.exit(main())
