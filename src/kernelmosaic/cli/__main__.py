"""``python -m kernelmosaic.cli``."""

import sys

from kernelmosaic.cli import main

sys.exit(main())
