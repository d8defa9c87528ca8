"""`python -m netsor`."""

import sys

from netsor.cli import main

sys.exit(main())
