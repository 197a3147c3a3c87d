"""How much memory a bank may take."""

from __future__ import annotations

import os
from pathlib import Path

#: What to do where not even one combined matrix fits.
SMALLER = "use approximation='nystroem', which needs no such matrix, or fewer samples, or raise memory_budget"


def available_bytes() -> int:
    """Return the memory the system would give without swapping; 4 GiB where it does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    except (AttributeError, ValueError, OSError):
        return 4 * 2**30


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
