"""Networks of finite width beside their limits, as in figures 1 to 3 of the Scale paper.

    python -m benchmarks networks.scale_figures

"The Scale paper" is Lee et al., "Scale mixtures of neural network Gaussian processes". Networks
with erf units and a random readout variance s² ~ InvGamma(a, b) are evaluated at 0: at the start
(theorem 3.1), after training the readout (3.2) and after training all layers (3.3), on a few points
of sin(x). Figure 3 has residual networks, all of whose layers are trained. Every group of networks
has its own file under --out, and the same command continues where it stopped.
"""

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic

import matplotlib as mpl
import numpy as np
import torch
from scipy import stats
from torch import Tensor

from benchmarks.markdown import percent, table
from benchmarks.script import Figures, Floats, kept, machine, options_of, write_results

mpl.use("Agg")
from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from geogp.models.papers.mixed_nystrom.kernels import NetworkKernel
from geogp.models.papers.scale_mixtures.processes import InverseGamma
from geogp.models.papers.scale_mixtures.trained_networks import TrainedNetwork

WEIGHT, BIAS = 8.0, 0.05**2
"""Prior variances of the paper; it prints a bias variance that also vanishes with the width."""

TRAIN = np.array([[-2.4], [0.4], [1.2]])
"""Training inputs; the paper does not state its own."""

AT = np.zeros((1, 1))

STAGES = {"start": "3.1", "readout": "3.2", "all": "3.3", "residual": "as 3.3"}
"""Trained layers, with the theorem about them; ``residual`` trains all layers."""

USUAL = {"start": 2.0, "readout": 2.0, "all": 1.0, "residual": 4.0}
"""a = b of the prior of s² in figures 1 and 3 (appendices G and H)."""

PRIORS = (1.0, 2.0, 4.0)
"""a = b in figures 2 and 3."""

WIDTHS = (32, 128, 512)
PRIOR_WIDTH = 128

AT_ONCE = 5_000_000
"""Approximate number of weights in memory at a time."""

LEFT, MOST_STEPS = 0.01, 2000
"""Training ends if no residual is larger than this share of s, or after this number of steps."""


@dataclass(frozen=True)
class Group:
    """Independent networks of one width, trained layers and prior."""

    stage: str
    width: int
    a: float
    networks: int

    @property
    def name(self) -> str:
        """Name of the group's file."""
        return "-".join(f"{value}" for value in asdict(self).values())


class ResidualKernel(NetworkKernel):
    """The kernel of two hidden layers, the second of which adds to the units of the first.

    K² = K¹ + bias + weight · F(K¹) and Θ² = Θ¹ + bias + weight · (F(K¹) + F'(K¹) Θ¹). As Θ¹ = K¹,
    this Θ² is also K² + weight · F'(K¹) Θ¹, the usual tangent kernel of the new K².
    """

    def __init__(self) -> None:
        super().__init__(2, "erf")

    def _next_layer(self, k11: Tensor, k12: Tensor, k22: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        first, across, second = super()._next_layer(k11, k12, k22)
        return k11 + first, k12 + across, k22 + second


def kernel(stage: str = "all") -> NetworkKernel:
    """Return the kernel of the limit, with two hidden layers and three layers of weights."""
    found = ResidualKernel() if stage == "residual" else NetworkKernel(2, "erf")
    found.requires_grad_(requires_grad=False)
    found.log_weight.fill_(math.log(WEIGHT))
    found.log_bias.fill_(math.log(BIAS))
    return found


def limit(stage: str, a: float) -> tuple[float, float]:
    """Return location and scale of the limit at 0; it is t with 2a degrees of freedom."""
    if stage == "start":
        return 0.0, math.sqrt(float(kernel().diagonal(torch.from_numpy(AT))[0]))
    layers = "readout" if stage == "readout" else "all"
    y, prior = np.sin(TRAIN[:, 0]), InverseGamma(a, a)
    law = TrainedNetwork(kernel(stage), TRAIN, y, prior, layers).law(AT)
    return float(law.mean[0]), math.sqrt(float(law.covariance[0, 0]))


class Networks:
    """Networks with parameters drawn from the prior, (k, ...) each, in the dtype of s.

    The parameters are standard normal, and the layers multiply them by the prior standard
    deviations (the parametrisation of theorem 3.3).
    """

    def __init__(
        self, k: int, width: int, s: Tensor, random: torch.Generator, stage: str = "all"
    ) -> None:
        shapes = [(k, 1, width), (k, width, width), (k, 1, width), (k, 1, width), (k, width, 1)]
        self.parameters = [torch.randn(*p, generator=random, dtype=s.dtype) for p in shapes]
        self.s = s[:, None, None]
        self.width, self.stage = width, stage

    def hidden(self, x: Tensor) -> Tensor:
        """Return the units of the last hidden layer at inputs (n, 1), (k, n, width)."""
        first, second, offset, other, _ = self.parameters
        z = math.sqrt(WEIGHT) * x @ first + math.sqrt(BIAS) * offset
        new = math.sqrt(WEIGHT / self.width) * torch.erf(z) @ second + math.sqrt(BIAS) * other
        return torch.erf(z + new if self.stage == "residual" else new)

    def output(self, x: Tensor) -> Tensor:
        """Return the values at inputs (n, 1), (k, n)."""
        readout = self.s / math.sqrt(self.width) * self.parameters[-1]
        return (self.hidden(x) @ readout)[..., 0]

    def train_readout(self, x: Tensor, y: Tensor) -> float:
        """Move the readout to the end of its gradient flow, the nearest readout that fits."""
        features = self.s / math.sqrt(self.width) * self.hidden(x)
        left = (y - self.output(x))[..., None]
        self.parameters[-1] += torch.linalg.lstsq(features, left, driver="gelsd").solution
        return float(((y - self.output(x)).abs() / self.s[..., 0]).max())

    def train(self, x: Tensor, y: Tensor) -> float:
        """Train all layers by gradient descent; return the largest residual, divided by s.

        The step is 1 / s² times that of s = 1, which changes the time of the flow, not its end.
        """
        largest = float(torch.linalg.eigvalsh(kernel(self.stage).tangent(x, x))[-1])
        step = -1.5 / largest / self.s.square()
        worst = math.inf
        for _ in range(MOST_STEPS):
            for value in self.parameters:
                value.requires_grad_()
            left = self.output(x) - y
            gradients = torch.autograd.grad(left.square().sum() / 2, self.parameters)
            worst = float((left.detach().abs() / self.s[..., 0]).max())
            with torch.no_grad():
                for value, gradient in zip(self.parameters, gradients, strict=True):
                    value.addcmul_(gradient, step)
            if worst < LEFT:
                break
        for value in self.parameters:
            value.requires_grad_(requires_grad=False)
        return worst


def values(group: Group) -> Figures:
    """Return the values at 0 of the networks of a group, and how well they fit."""
    start, found, worst = monotonic(), [], 0.0
    deep = group.stage in ("all", "residual")
    dtype = torch.float32 if deep else torch.float64
    x, y, at = (torch.from_numpy(part).to(dtype) for part in (TRAIN, np.sin(TRAIN[:, 0]), AT))
    random = np.random.default_rng([group.width, int(4 * group.a), len(group.stage)])
    s = torch.from_numpy(np.sqrt(1 / random.gamma(group.a, 1 / group.a, group.networks))).to(dtype)
    generator = torch.Generator().manual_seed(int(random.integers(2**31)))
    for part in s.split(max(1, AT_ONCE // group.width**2)):
        networks = Networks(len(part), group.width, part, generator, group.stage)
        if group.stage == "readout":
            worst = max(worst, networks.train_readout(x, y))
        elif deep:
            worst = max(worst, networks.train(x, y))
        found += networks.output(at)[:, 0].tolist()
    print(group.name, flush=True)
    seconds = round(monotonic() - start, 1)
    shown = [float(f"{value:.5g}") for value in found]
    return {**asdict(group), "values": shown, "largest_residual": worst, "seconds": seconds}


def groups(networks: int, wide: int) -> Iterator[Group]:
    """Yield all groups; `wide` is the number of networks of the largest width for theorem 3.3."""
    for stage, usual in USUAL.items():
        for width in WIDTHS:
            slow = stage in ("all", "residual") and width == max(WIDTHS)
            yield Group(stage, width, usual, wide if slow else networks)
        for a in PRIORS:
            if a != usual:
                yield Group(stage, PRIOR_WIDTH, a, networks)


def standard(one: Figures) -> Floats:
    """Return the values of a group in units of the limit's scale for s = 1."""
    location, scale = limit(one["stage"], one["a"])
    return (np.array(one["values"]) - location) / scale


def summary(figures: Sequence[Figures]) -> str:
    """Return a line for each group."""
    lines = []
    for one in figures:
        z, t = standard(one), stats.t(2 * one["a"])
        test = stats.kstest(z, t.cdf)
        quarter = np.quantile(abs(z), 0.5) / t.ppf(0.75)
        normal = np.quantile(abs(z), 0.5) / stats.norm.ppf(0.75) * stats.norm.ppf(0.995)
        lines.append(
            (
                *(STAGES[one["stage"]], one["stage"], one["width"], f"{one['a']:g}"),
                *(len(z), f"{test.statistic:.3f}", f"{test.pvalue:.3f}", f"{quarter:.3f}"),
                *(percent(np.mean(abs(z) > t.ppf(0.995))), percent(np.mean(abs(z) > normal))),
                *(f"{one['largest_residual']:.0e}", f"{one['seconds']:.0f}"),
            )
        )
    header = (
        *("theorem", "trained", "width", "a = b", "networks", "distance to the limit", "p"),
        *("median / limit", "beyond 99 % of the limit", "beyond 99 % of a normal"),
        *("largest residual / s", "seconds"),
    )
    return table(header, lines, left=(0, 1))


def page(figures: Sequence[Figures]) -> str:
    """Return the table."""
    counts = sorted({len(one["values"]) for one in figures})
    shown = " to ".join(f"{count:,}" for count in dict.fromkeys((counts[0], counts[-1])))
    return f"""# Networks of finite width and their limits (Lee et al., figures 1 to 3)

{shown} networks for each line and panel; the paper: 1,000.

    python -m benchmarks networks.scale_figures

Values at 0 of networks with two hidden layers of erf units, weights N(0, 8 / width), biases N(0,
0.05²) and a readout s w, s² ~ InvGamma(a, b). They are trained on sin(x) at -2.4, 0.4 and 1.2
(the paper does not state its inputs), in the parametrisation of theorem 3.3. The end of the
gradient flow of the readout is computed by least squares; all layers are trained by gradient
descent. *distance*: Kolmogorov-Smirnov, with its *p*. *median / limit*: of the distance from the
limit's mean. *beyond 99 % of a normal*: of the normal distribution with the same median distance.
*residual* (figure 3): all layers are trained, and the second hidden layer adds to the units of the
first. The paper does not describe its residual network, and has no theorem for it.

{summary(figures)}"""


def draw(figures: Sequence[Figures], path: Path) -> None:
    """Draw the panels of figures 1 to 3."""
    figure = plt.figure(figsize=(15, 6.2), layout="constrained")
    top, bottom = figure.subfigures(2, 1)
    axes = top.subplots(1, 2 + len(STAGES))
    predictives(axes[0], axes[1])
    usual = [one for one in figures if one["width"] == max(WIDTHS)]
    for ax, one in zip(axes[2:], usual, strict=True):
        histogram(ax, one)
    for ax, stage in zip(bottom.subplots(1, len(STAGES)), STAGES, strict=True):
        same = [f for f in figures if (f["stage"], f["width"]) == (stage, PRIOR_WIDTH)]
        tails(ax, sorted(same, key=lambda one: one["a"]), stage)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=90, pil_kwargs={"quality": 80, "method": 6})
    plt.close(figure)


def predictives(fixed: Axes, mixed: Axes) -> None:
    """Draw the posterior of the process with s² = 1, and with s² ~ InvGamma(2, 2) a priori."""
    at = np.linspace(-4, 4, 161)[:, None]
    y = np.sin(TRAIN[:, 0])
    prior = InverseGamma(USUAL["readout"], USUAL["readout"])
    law = TrainedNetwork(kernel(), TRAIN, y, prior).law(at)
    points = torch.from_numpy(TRAIN)
    distance = float(y @ np.linalg.solve(kernel()(points, points).numpy(), y))
    scale = InverseGamma(prior.a + len(y) / 2, prior.b + distance / 2)
    spread = np.sqrt(law.covariance.diagonal())
    student = stats.t.ppf(0.975, 2 * scale.a) * math.sqrt(scale.b / scale.a)
    for ax, half, name in ((fixed, 1.96, "NNGP, s = 1"), (mixed, student, "scale mixture")):
        ax.fill_between(at[:, 0], law.mean - half * spread, law.mean + half * spread, alpha=0.3)
        ax.plot(at, law.mean)
        ax.plot(at, np.sin(at), color="0.3", ls="--", lw=1)
        ax.plot(TRAIN, y, "k.")
        ax.set_title(f"posterior, 95 %: {name}", fontsize=9)
        ax.set_ylim(-3.2, 3.2)


def heading(stage: str) -> str:
    """Return the beginning of a panel's title."""
    return "residual" if stage == "residual" else f"theorem {STAGES[stage]}"


def histogram(ax: Axes, one: Figures) -> None:
    """Draw the values of a group, the limit, and the normal distribution with s² = b / a."""
    z, at = standard(one), np.linspace(-6, 6, 301)
    ax.hist(z, np.linspace(-6, 6, 49), density=True, alpha=0.4)
    ax.plot(at, stats.t.pdf(at, 2 * one["a"]), label="limit")
    ax.plot(at, stats.norm.pdf(at), color="0.4", ls="--", lw=1, label="normal")
    ax.set_title(f"{heading(one['stage'])}, width {one['width']}", fontsize=9)
    ax.set_xlabel("(f(0) - mean) / scale")
    ax.legend(frameon=False, fontsize=8)


def tails(ax: Axes, same: Sequence[Figures], stage: str) -> None:
    """Draw the share of networks beyond a distance, for each prior, with the limits."""
    at = np.geomspace(0.1, 30, 200)
    for number, one in enumerate(same):
        z, colour = np.sort(abs(standard(one))), f"C{number}"
        ax.plot(at, 2 * stats.t.sf(at, 2 * one["a"]), color=colour, label=f"a = b = {one['a']:g}")
        ax.plot(z, 1 - np.arange(len(z)) / len(z), ".", ms=2.5, color=colour)
    ax.plot(at, 2 * stats.norm.sf(at), color="0.4", ls="--", lw=1, label="normal")
    ax.set(xscale="log", yscale="log", ylim=(1e-3, 1.2), xlim=(0.1, 30))
    ax.set_title(f"{heading(stage)}, width {PRIOR_WIDTH}: share beyond", fontsize=9)
    ax.set_xlabel("|f(0) - mean| / scale")
    ax.legend(frameon=False, fontsize=8)


def main() -> None:
    """Draw the networks whose files do not exist yet, then make figures and table."""
    options = options_of(
        __doc__, out="scale-figures", table="scale-figures", networks=1000, wide=1000
    )
    found = [
        kept(options.out / f"{group.name}.json", functools.partial(values, group))
        for group in groups(options.networks, options.wide)
    ]
    write_results(options.table, page(found), {"machine": machine(), "groups": found})
    draw(found, options.table / "figures.webp")
