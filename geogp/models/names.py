"""Names and descriptions of the models; this module does not import torch."""

from dataclasses import dataclass
from functools import partial
from typing import Literal, get_args

from geogp.arguments import checked_arguments
from geogp.choices import AVERAGE, CLASS, COUNT, nearest, one_of
from geogp.errors import RequestError
from geogp.models.options import NOISES

Family = Literal["deep", "field", "kernel", "count", "class"]


@dataclass(frozen=True)
class ModelName:
    """The description of a model for users.

    `name`: the name on the command line.
    `summary`: one line of text.
    `family`: the family of the model; each family has its own presets.
    `has_spread`: whether the function has a variance; without it, the model predicts only
        measurements.
    `takes_student`: whether the model can be trained under Student-t noise.
    `uses`: names of the weights in `Weights` that the objective uses; only the PPGP family has any.
    `paper`: authors of the model; empty for a plain network.
    `recommended`: whether this is the model for users; the others are for comparison and study.
    """

    name: str
    summary: str
    family: Family = "deep"
    has_spread: bool = True
    takes_student: bool = False
    uses: tuple[str, ...] = ()
    paper: str = ""
    recommended: bool = False

    @property
    def has_tiles(self) -> bool:
        """Whether the model has a process of single tiles and noise that depends on the tests."""
        return self.family == "field"

    @property
    def takes_covariates(self) -> bool:
        """Whether the model may depend on covariates."""
        return self.family in {"field", "class"}

    @property
    def spread_is_noise(self) -> bool:
        """Whether the objective scores predictions with the variance s² + noise_var (PPGP family).

        In the PPGP family, the function variance s² also contains input-dependent noise.
        """
        return bool(self.uses)

    @property
    def kind(self) -> str:
        """The kind of the targets: average, count or class."""
        return {"count": COUNT, "class": CLASS}.get(self.family, AVERAGE)

    @property
    def counts(self) -> bool:
        """Whether the targets are counts (0, 1, 2, ...), whose log rate the model describes."""
        return self.family == "count"

    @property
    def takes_budget(self) -> bool:
        """Whether a time budget can determine the rank, which is the number of fixed anchors."""
        return self.family == "kernel"

    def check_noise(self, noise: str) -> None:
        """Raise RequestError if a noise is not in `NOISES`, or not available for this model."""
        one_of("noise", noise, NOISES)
        if noise != NOISES[0] and self.kind == CLASS:
            raise RequestError(
                f"{self.name} has no {noise} noise, because a class has no noise. Choose the noise "
                f"{NOISES[0]}."
            )
        if noise != NOISES[0] and not self.takes_student:
            able = [model.name for model in MODELS.values() if model.takes_student]
            raise RequestError(
                f"{self.name} has no {noise} noise: this noise needs the evidence lower bound "
                f"and a likelihood that is a product over rows. Choose one of {', '.join(able)}, "
                f"or the noise {NOISES[0]}."
            )


BASIS_KERNELS = "Zhu, Yuchi and Xie"
"""Authors of the paper on deep basis kernels; `docs/papers/index.md` has the titles."""

NETWORK_KERNELS = "Antunes de Araújo and Gonçalves"
"""Authors of the paper on mixed kernels of infinitely wide networks."""

SCALE_MIXTURES = "Lee et al."
"""Authors of the paper on infinitely wide networks with a random scale."""

LAST_LAYERS = "Calvo-Ordoñez et al."
"""Authors of the paper on Bayesian last layers."""

_kernel = partial(ModelName, family="kernel")
_dppgp = partial(ModelName, uses=("alpha", "beta"), paper=BASIS_KERNELS)
_student = partial(ModelName, takes_student=True)
_basis = partial(ModelName, paper=BASIS_KERNELS)
_mixed = partial(_kernel, paper=NETWORK_KERNELS)
_scale = partial(_kernel, paper=SCALE_MIXTURES)
_layers = partial(ModelName, paper=LAST_LAYERS)

_MODELS = (
    ModelName(
        "field",
        "a deep basis over space and time, a process of single tiles, noise that depends on the "
        "number of tests",
        family="field",
        paper="geogp",
        recommended=True,
    ),
    _dppgp("dbk-rbf", "deep basis kernel: inducing points of an RBF kernel on a network, dPPGP"),
    _dppgp("dbk-silu", "deep basis kernel: a dense SiLU layer on a network, dPPGP"),
    _dppgp("dbk-fourier", "deep basis kernel: Fourier features of a network, dPPGP"),
    _dppgp("dbk-spline", "deep basis kernel: cubic B-splines of a network's coordinates, dPPGP"),
    ModelName(
        "pp-dkl",
        "parametric predictive deep kernel learning: inducing points on a network, PPGP",
        uses=("beta",),
        paper="Jankowiak et al. 2020",
    ),
    _student(
        "sv-dkl",
        "sparse deep kernel learning: inducing points of an RBF kernel on a network, ELBO",
        paper="Wilson et al. 2016",
    ),
    _student(
        "sv-rbf",
        "sparse variational GP: inducing points of an RBF kernel on inputs, ELBO",
        paper="Hensman et al. 2013",
    ),
    _student(
        "sv-dbk",
        "deep basis kernel: a dense SiLU layer, ELBO with the variance correction",
        paper=BASIS_KERNELS,
    ),
    _student(
        "vbll",
        "variational Bayesian last layer: a dense SiLU layer on a network, ELBO",
        paper="Harrison et al. 2024",
    ),
    _basis(
        "dbk-exact",
        "deep basis kernel in closed form: a dense SiLU layer, corrected marginal likelihood",
    ),
    _basis(
        "dbk-exact-rbf",
        "deep basis kernel in closed form: inducing points, corrected marginal likelihood",
    ),
    _basis("dbk-mml", "dbk-exact without the correction, for study: its variance collapses"),
    ModelName(
        "sgp",
        "sparse GP: inducing points of an RBF kernel on inputs, collapsed bound",
        paper="Titsias 2009",
    ),
    ModelName(
        "sdkl",
        "sparse deep kernel learning: inducing points of an RBF kernel on a network, "
        "collapsed bound",
        paper="Wilson et al. 2016",
    ),
    ModelName(
        "dnn",
        "a plain network, squared error; one noise variance from the validation rows",
        has_spread=False,
    ),
    _mixed("nystrom-mixed", "mixed arcsine and leaky-ReLU kernel at anchors, maximum a posteriori"),
    _mixed(
        "nystrom-mixed-dtc",
        "nystrom-mixed, whose predictions add the prior variance that the anchors do not explain",
    ),
    _mixed(
        "nystrom-mixed-fitc",
        "nystrom-mixed plus the prior variance that the anchors do not explain",
    ),
    _scale("nngp", "kernel of infinitely wide erf networks at anchors, marginal likelihood"),
    _scale("nngp-relu", "kernel of infinitely wide ReLU networks at anchors, marginal likelihood"),
    _scale("t-process", "nngp with an inverse-gamma scale, which gives a Student-t process"),
    ModelName(
        "sv-t-process",
        "t-process by mini-batches: a variational posterior of weights and scale",
        paper=SCALE_MIXTURES,
    ),
    _layers(
        "bll",
        "Bayesian last layer: a plain network, squared error, then a closed form on its features",
    ),
    _layers(
        "rich-bll", "Bayesian last layer enriched by the tangent kernel of the layers before it"
    ),
    ModelName(
        "cox",
        "counts of tests: a Poisson process whose log intensity has a deep basis, ELBO",
        family="count",
        paper=BASIS_KERNELS,
    ),
    ModelName(
        "cox-nb",
        "cox with a gamma effect of each tile and quarter: negative binomial counts",
        family="count",
        paper=BASIS_KERNELS,
        recommended=True,
    ),
    _scale(
        "burr-process",
        "t-process with a Burr XII scale: mixtures of normals, by importance sampling",
    ),
)

MODELS: dict[str, ModelName] = {model.name: model for model in _MODELS}
"""All models of numbers, by name."""

_class = partial(ModelName, family="class")

_CLASS_MODELS = (
    _class(
        "class-nngp",
        "sparse variational GP: kernel of infinitely wide erf networks at anchors",
        paper=SCALE_MIXTURES,
    ),
    _class(
        "class-t-process",
        "class-nngp with an inverse-gamma scale: a Student-t process",
        paper=SCALE_MIXTURES,
    ),
    _class(
        "class-rbf",
        "sparse variational GP: inducing points of an RBF kernel on inputs",
        paper="Hensman et al. 2015",
    ),
    _class(
        "class-dbk",
        "deep basis kernel: a dense SiLU layer on a network, ELBO",
        paper=BASIS_KERNELS,
        recommended=True,
    ),
    _class("class-dnn", "a plain network with a softmax, cross-entropy", has_spread=False),
    _class("class-bll", "class-dnn with a Bayesian last layer", paper=LAST_LAYERS),
    _class(
        "class-rich-bll",
        "class-bll enriched by the tangent kernel of the layers before it",
        paper=LAST_LAYERS,
    ),
    _class(
        "class-laplace",
        "class-dnn with a Laplace approximation of its last layer",
        paper=LAST_LAYERS,
    ),
    _class(
        "class-dnn-normal",
        "a network whose last layer starts at normal draws, for ensembles",
        has_spread=False,
        paper=SCALE_MIXTURES,
    ),
    _class(
        "class-dnn-student",
        "class-dnn-normal times a random inverse-gamma scale, for ensembles",
        has_spread=False,
        paper=SCALE_MIXTURES,
    ),
)

CLASS_MODELS: dict[str, ModelName] = {model.name: model for model in _CLASS_MODELS}
"""All models of classes, by name; `geogp map --target tier` fits these."""


def find_model(name: str) -> ModelName:
    """Return the model with a name; if unknown, raise RequestError with the nearest names."""
    every = MODELS | CLASS_MODELS
    if name not in every:
        near = nearest(name, every, 3) or list(every)
        raise RequestError(
            f"unknown model {name!r}. Nearest: {', '.join(near)}. `geogp models` lists all models."
        )
    return every[name]


@checked_arguments
def list_models(family: str | None = None) -> list[str]:
    """Return the names of the models in all families or in one family.

    Parameters
    ----------
    family
        ``field``, ``deep``, ``kernel``, ``count`` or ``class``. The estimators of these families
        are `FieldGP`, `DeepBasisGP`, `KernelGP`, `CountGP` and `ClassGP`.

    Raises
    ------
    RequestError
        If the family is unknown.

    Examples
    --------
    >>> list_models("field")
    ['field']
    """
    if family is not None:
        one_of("family", family, get_args(Family))
    every = MODELS | CLASS_MODELS
    return [name for name, model in every.items() if family in {None, model.family}]
