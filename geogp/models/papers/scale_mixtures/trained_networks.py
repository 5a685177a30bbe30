"""Infinitely wide networks with a random readout scale, after training by gradient flow.

"The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian processes". At the start
of training, the network f0 has, given s², the covariance s² K (theorem 3.1). Gradient flow on the
squared error, without noise and without end, gives f = f0 + R (y - f0(training inputs)), where R =
C_new,train C_train,train^(-1). If only the readout is trained, C = K (theorem 3.2). If all layers
are trained, C is the tangent kernel Θ (theorem 3.3). So, given s²,

f ~ N(R y, s² T K T'), T = (-R, I), with K over training and new inputs.

s² has its prior, not its posterior: training does not weigh networks by their likelihood. Theorem
3.3 needs Θ proportional to s². This is so if the readout is s w, and w is trained. With the flow as
the paper prints it, which trains the readout s w itself, the part of the readout in Θ does not
depend on s², so R depends on s² and f is no such mixture.
"""

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from geogp.choices import one_of
from geogp.distributions.burr import BurrScale
from geogp.distributions.prediction import Prediction
from geogp.errors import DataError, RequestError
from geogp.models.numerics.arrays import as_floats
from geogp.models.numerics.linalg import jittered_cholesky
from geogp.models.papers.mixed_nystrom.kernels import NetworkKernel
from geogp.models.papers.scale_mixtures.processes import InverseGamma
from geogp.models.process.lowrank import Floats

TrainedLayers = Literal["readout", "all"]

TRAINED_JITTER = 1e-10
"""Relative jitter of the covariances that are factorised."""


@dataclass(frozen=True)
class TrainedLaw:
    """The distribution of trained networks at m points: N(mean, s² covariance) given s².

    `mean` is (m,) and `covariance` (m, m), float64; `scale` is the distribution of s². With an
    inverse-gamma scale, the values are multivariate t with 2a degrees of freedom and the scale
    matrix (b / a) covariance (equation 5 of the Scale paper).
    """

    mean: Floats
    covariance: Floats
    scale: InverseGamma | BurrScale

    def prediction(self) -> Prediction:
        """Return the distribution at single points, without noise.

        Raises RequestError if s² has no mean, and NumericalError if a variance is 0, as it is at
        the training inputs up to rounding.
        """
        variance = self.scale.mean * self.covariance.diagonal()
        return Prediction(self.mean, variance, 0 * variance, shape=self.scale.shape)


@dataclass(frozen=True)
class TrainedNetwork:
    """An infinitely wide network, trained on rows x (n, d) and y (n,) without noise.

    `kernel`: the kernel, with a readout variance of 1; inputs are not scaled.
    `scale`: the prior of the variance s² of the readout; for a Burr prior, BurrScale(prior, 0, 0).
    `layers`: the trained layers, ``readout`` (theorem 3.2) or ``all`` (theorem 3.3).
    `jitter`: relative jitter of K and of the matrix C_train,train.

    Needs memory for (n + m)² values to predict m points. Raises RequestError if the readout
    variance is not 1 or `layers` is unknown, and DataError if the shapes do not fit.
    """

    kernel: NetworkKernel
    x: Floats
    y: Floats
    scale: InverseGamma | BurrScale
    layers: TrainedLayers = "readout"
    jitter: float = TRAINED_JITTER

    def __post_init__(self) -> None:
        one_of("layers", self.layers, get_args(TrainedLayers))
        readout = float(self.kernel.log_readout.detach().exp())
        if readout != 1:
            raise RequestError(
                f"expected a kernel with a readout variance of 1, because `scale` is its "
                f"distribution, found {readout:g}. Set log_readout to 0."
            )
        x, y = as_floats(self.x, "inputs"), as_floats(self.y, "targets")
        if x.ndim != 2 or y.shape != x.shape[:1] or not len(y):
            raise DataError(
                f"expected inputs (n, d) and targets (n,) with n >= 1, found {x.shape} and "
                f"{y.shape}."
            )
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", y)

    def law(self, new: Floats) -> TrainedLaw:
        """Return the distribution of the trained network at new inputs (m, d).

        Raises DataError if the inputs have a wrong shape, and NumericalError if a covariance does
        not factorise, for example because training rows are equal.
        """
        fresh = as_floats(new, "inputs")
        if fresh.ndim != 2 or fresh.shape[1] != self.x.shape[1]:
            raise DataError(
                f"expected inputs of shape (m, {self.x.shape[1]}), found {fresh.shape}."
            )
        train, points = (torch.as_tensor(inputs) for inputs in (self.x, fresh))
        with torch.no_grad():
            C = self._training_kernel(train, train)
            across = self._training_kernel(points, train)
            R = torch.cholesky_solve(across.T, jittered_cholesky(C, self.jitter)[0]).T
            both = torch.cat([train, points])
            root = jittered_cholesky(self.kernel(both, both), self.jitter)[0]
            # T K T' from a factor of K has no negative variances.
            half = root[len(train) :] - R @ root[: len(train)]
            mean = R @ torch.as_tensor(self.y)
        return TrainedLaw(mean.numpy(), (half @ half.T).numpy(), self.scale)

    def _training_kernel(self, a: Tensor, b: Tensor) -> Tensor:
        return self.kernel(a, b) if self.layers == "readout" else self.kernel.tangent(a, b)
