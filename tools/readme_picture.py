"""Draw the README's picture, which is that of ``kernelmosaic demo``.

python tools/readme_picture.py docs/images/views.png
"""

from __future__ import annotations

import sys

from kernelmosaic.demo import patients

patients().draw().savefig(sys.argv[1], facecolor="white")
