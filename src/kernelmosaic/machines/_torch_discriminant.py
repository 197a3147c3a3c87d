"""Discriminant analysis on a device: the factorisation stays there, coefficients come to the host."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from kernelmosaic.gram.device import DeviceGram
from kernelmosaic.machines.discriminant import Factored, Matrix


@dataclass(frozen=True)
class DeviceFactored(Factored):
    """As `Factored`, with the Cholesky factor on a device."""

    def solve(self, right: Matrix) -> Matrix:
        sides = torch.as_tensor(np.ascontiguousarray(right, dtype=np.float64), device=self.factor.device)
        return np.asarray(torch.cholesky_solve(sides, self.factor).cpu().numpy())


def solve_on_device(gram: DeviceGram, targets: Matrix, alpha: float) -> DeviceFactored:
    """Return β = (λI + G̃)⁻¹ targets, G̃ being the centred kernel; see `solve_centred`.

    The matrix is centred, lifted and factorised in double precision; what `gram` holds is overwritten.
    """
    G = gram.matrix.double()
    means = G.mean(0)
    G -= means
    G -= (means - means.mean()).unsqueeze(1)
    n = len(gram)
    # Centred matrices do not see constants: lifting that direction changes nothing the targets reach.
    G += max(float(G.diagonal().sum()) / n, alpha) / n
    G.diagonal().add_(alpha)
    factor, info = torch.linalg.cholesky_ex(G)
    if int(info):
        raise np.linalg.LinAlgError("The regularised kernel matrix is not positive definite to machine precision.")
    found = DeviceFactored(factor, np.empty(0))
    beta = found.solve(targets)
    return DeviceFactored(factor, np.asarray(beta - beta.mean(axis=0)))
