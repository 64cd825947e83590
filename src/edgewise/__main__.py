"""`python -m edgewise`."""

import sys

from edgewise.cli import main

sys.exit(main())
