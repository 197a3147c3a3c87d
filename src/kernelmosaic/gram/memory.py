"""How much memory a stack may take."""

from __future__ import annotations

from kernelmosaic.backend import available_bytes

#: What to do where not even one combined matrix fits.
SMALLER = "use approximation='nystroem', which needs no such matrix, or fewer samples, or raise memory_budget"


def default_budget() -> int:
    """Half of the memory that is free now."""
    return available_bytes() // 2


def format_bytes(size: float) -> str:
    """Write a size as people read it: ``1.5 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
