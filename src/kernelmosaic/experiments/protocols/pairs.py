"""The papers' comparisons of two methods: the 5×2 cv F test on each data set, and counts over all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kernelmosaic.experiments.protocols.tables import Cell
from kernelmosaic.experiments.summary import Row
from kernelmosaic.stats import Comparison, compare

_VERDICTS = {"win": 1.0, "tie": 0.0, "loss": -1.0}


@dataclass(frozen=True)
class Pair:
    """Two columns to compare, from the first one's side.

    Parameters
    ----------
    first, second : (str, str)
        Names and kernels of the two methods.
    name : str
        As printed: ``"LMKL vs MKL"``.
    overall : str
        What the papers call all data sets together; empty if the comparison is not made over data sets.
    n_sets : int
        How many data sets that is. Counts over fewer are named so, and not set beside the paper's; 0 means any number.
    metrics : tuple of (str, bool) pairs
        What is compared, and whether more of it is better.
    """

    first: tuple[str, str]
    second: tuple[str, str]
    name: str
    overall: str = ""
    n_sets: int = 0
    metrics: tuple[tuple[str, bool], ...] = (("accuracy", True), ("sv_percent", False))

    def rows(self, cells: Sequence[Cell]) -> list[Row]:
        """Return the rows of this comparison; none where a data set lacks replicates."""
        by_name = {(cell.dataset, cell.method, cell.kernels): cell for cell in cells}
        rows: list[Row] = []
        for metric, larger_is_better in self.metrics:
            scores = {}
            for dataset in dict.fromkeys(cell.dataset for cell in cells):
                both = [by_name.get((dataset, *method)) for method in (self.first, self.second)]
                values = [cell.values.get(metric, []) if cell else [] for cell in both]
                if all(len(one) == 10 for one in values):
                    scores[dataset] = (values[0], values[1])
            if scores:
                # Two decimals, as the tables that the papers compare by eye.
                compared = compare(scores, larger_is_better=larger_is_better, decimals=2)
                rows += self._tests(compared, metric) + self._counts(compared, metric)
        return rows

    def _tests(self, compared: Comparison, metric: str) -> list[Row]:
        rows = []
        for one in compared.rows:
            assert one.f_test is not None
            kernels = self.first[1]
            rows.append(Row(one.dataset, self.name, kernels, f"F:{metric}", min(one.f_test.statistic, 1e9)))
            rows.append(Row(one.dataset, self.name, kernels, f"p:{metric}", one.f_test.p_value))
        return rows

    def _counts(self, compared: Comparison, metric: str) -> list[Row]:
        if not self.overall:
            return []
        found: dict[str, float] = {}
        for test, counts in (("5x2cvF", compared.f_test), ("direct", compared.direct)):
            if counts is not None:
                found |= {
                    f"wins:{test}:{metric}": counts.wins,
                    f"ties:{test}:{metric}": counts.ties,
                    f"losses:{test}:{metric}": counts.losses,
                }
        found[f"wilcoxon:{metric}"] = _VERDICTS[compared.wilcoxon_verdict]
        found[f"wilcoxon_p:{metric}"] = compared.wilcoxon.p_value
        n_sets = len(compared.rows)
        name = self.overall if self.n_sets in (0, n_sets) else f"{n_sets} of {self.overall}"
        return [Row(name, self.name, self.first[1], key, float(value)) for key, value in found.items()]
