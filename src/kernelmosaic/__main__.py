"""``python -m kernelmosaic``: the command line."""

import sys

from kernelmosaic.cli import main

sys.exit(main())
