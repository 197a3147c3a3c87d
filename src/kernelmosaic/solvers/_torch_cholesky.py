"""Cholesky factors on a device."""

from __future__ import annotations

import torch
from torch import Tensor

from kernelmosaic.solvers.cholesky import Cholesky


class DeviceCholesky(Cholesky):
    """As `Cholesky`, with the factor where the matrix is."""

    def scaling(self, M: Tensor) -> Tensor:
        return M.diagonal().clamp(min=1e-300).rsqrt()

    def factorise(self, M: Tensor, jitter: float) -> bool:
        A = M * self.scale * self.scale[:, None]
        A.diagonal().add_(jitter)
        self.factor, info = torch.linalg.cholesky_ex(A)
        return int(info) == 0

    def solve(self, right: Tensor) -> Tensor:
        columns = right[:, None] if right.ndim == 1 else right
        found: Tensor = self.scale[:, None] * torch.cholesky_solve(self.scale[:, None] * columns, self.factor)
        return found[:, 0] if right.ndim == 1 else found
