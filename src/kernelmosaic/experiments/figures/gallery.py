"""All pictures there are."""

from __future__ import annotations

from kernelmosaic.experiments.figures import paper_000, paper_001, paper_002
from kernelmosaic.experiments.figures.drawing import Drawing

#: In the order in which a page shows them. A new file of pictures adds its own here.
DRAWINGS: tuple[Drawing, ...] = (*paper_000.DRAWINGS, *paper_001.DRAWINGS, *paper_002.DRAWINGS)
