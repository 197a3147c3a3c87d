"""Reports: HTML pages that need no other file and no network."""

from kernelmosaic.reports.files import write_bytes, write_text
from kernelmosaic.reports.page import Cell, Page, Picture, Table

__all__ = ["Cell", "Page", "Picture", "Table", "write_bytes", "write_text"]
