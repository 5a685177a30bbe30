"""The estimator of classes, with the conventions of scikit-learn's classifiers."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self, cast

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from geogp.arguments import checked_arguments, value_shown
from geogp.choices import MAX_SEED, one_of, whole_number
from geogp.distributions.class_prediction import ClassPrediction
from geogp.errors import DataError, RequestError, named
from geogp.estimators.fit_rows import column_of, mask_of, warn_caller
from geogp.estimators.parameters import EstimatorParameters, plain
from geogp.estimators.point_columns import number_rows
from geogp.estimators.stored_schema import StoredClasses
from geogp.models.catalogue.build import SCALINGS, Scaling
from geogp.models.catalogue.fit_plan import FitPlan
from geogp.models.catalogue.storage import save_models
from geogp.models.fitting.fit_progress import FitProgress
from geogp.models.fitting.loop import FitState
from geogp.models.names import CLASS_MODELS
from geogp.models.numerics.arrays import as_floats
from geogp.models.numerics.devices import pick_device
from geogp.models.papers.classes.processes import ClassProcess
from geogp.models.presets import CLASS_PRESETS
from geogp.models.process.architecture import Architecture
from geogp.models.process.data import Data
from geogp.models.process.model import Model

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
Codes = NDArray[np.intp]

VALIDATION = "random"
"""The only named way to choose the validation rows; the user may also give a mask of the rows."""

MAX_MEMBERS = 1000
"""Largest number of members, far above any useful number; more is a mistake."""


@dataclass(eq=False, repr=False, kw_only=True)
class ClassGP(EstimatorParameters):
    """A Gaussian process of classes: the class of a row is a draw from the softmax of functions.

    Each class has a function of the inputs, which are numbers of any meaning. The models are sparse
    variational processes, networks with a Bayesian last layer, and plain networks. With several
    members, the estimator is an ensemble: the models are fitted with different seeds, and their
    probabilities are averaged.

    Parameters
    ----------
    model
        One of ``geogp.list_models("class")``.
    members
        Number of models in the ensemble.
    columns
        Columns of a table to use as inputs; by default all columns.
    classes
        All classes that can occur, if some have no training rows; by default the classes of `y`.
    scaling
        ``minmax`` maps the range of each column to [-1, 1]. ``none`` expects columns that are about
        in [-1, 1], and suits columns with one unit, such as the pixels of an image.
    validation
        Rows on which the best epoch is chosen: ``random`` (a tenth of the rows of each class), or a
        mask of the rows, (n,). For points on a map, give a mask of whole areas.
    preset
        Sizes and training schedule: ``quick``, ``standard`` or ``paper``.
    epochs, rank, batch
        If given, these replace the values of the preset.
    device
        ``auto``, ``cpu`` or ``cuda``.
    random_state
        Seed for the choice of validation rows and for the fit.
    verbose
        Whether `fit` prints its progress and the time that is left, as in `FieldGP`.

    Attributes
    ----------
    classes_
        The classes, sorted, (k,).
    networks_
        The fitted models, PyTorch modules, one for each member.
    history_
        Losses, validation scores and the best epoch of each fit.
    validation_
        Mask of the validation rows, bool (n,).
    n_features_in_, feature_names_in_
        Number of inputs, and for a table the names of their columns.

    Examples
    --------
    >>> import numpy as np, geogp
    >>> rng = np.random.default_rng(0)
    >>> places = rng.uniform(-1, 1, (400, 2))
    >>> side = np.where(places[:, 0] > 0, "east", "west")
    >>> model = geogp.ClassGP(epochs=5, rank=20).fit(places, side)
    >>> model.predict([[-0.8, 0.0], [0.8, 0.0]]).tolist()
    ['west', 'east']
    """

    families: ClassVar[tuple[str, ...]] = ("class",)
    is_classifier: ClassVar[bool] = True
    model: str = field(default="class-nngp", kw_only=False)
    members: int = 1
    columns: Sequence[Any] | None = None
    classes: Sequence[Any] | None = None
    scaling: Scaling = "minmax"
    validation: Any = VALIDATION
    preset: str = "quick"
    epochs: int | None = None
    rank: int | None = None
    batch: int | None = None
    device: str = "auto"
    random_state: int = 0
    verbose: bool = False

    classes_: NDArray[Any] = field(init=False)
    networks_: list[ClassProcess] = field(init=False)
    history_: list[FitState] = field(init=False)
    validation_: Mask = field(init=False)

    @checked_arguments
    def fit(self, X: Any, y: ArrayLike) -> Self:
        """Fit the model to rows with known classes.

        Parameters
        ----------
        X
            A table (pandas) or an array of numbers, (n, d).
        y
            The class of each row, (n,): text, whole numbers or booleans.

        Returns
        -------
        The estimator.

        Raises
        ------
        RequestError
            A parameter is out of range, a column is missing, or there is not enough memory.
        DataError
            A value is missing or infinite, X and y differ in length, there is only one class, or
            all inputs are constant.
        NumericalError
            The fit diverges.

        Warns
        -----
        UserWarning
            A model has more weights than there are training rows.
        """
        self.check()
        x = self._inputs(X, fitted=False)
        classes, codes = self._coded(y, len(x))
        mask = self._validation_mask(codes)
        rows, chosen = (Data(x[some], codes[some].astype(np.float64)) for some in (~mask, mask))
        networks, history = [], []
        for member in range(self.members):
            seed = (self.members * int(self.random_state) + member) % MAX_SEED
            plan = self.plan(rows, len(classes), seed)
            network, state = self._fitted(plan, rows, chosen, member)
            networks.append(cast("ClassProcess", network))
            history.append(state)
        self.classes_, self.networks_, self.history_ = classes, networks, history
        self.validation_ = mask
        columns = getattr(X, "columns", ()) if self.columns is None else self.columns
        self.take_features(X, columns, x.shape[1])
        return self

    @checked_arguments
    def predict(self, X: Any) -> NDArray[Any]:
        """Return the most probable class of each row, (n,)."""
        codes = self.predict_distribution(X).codes
        return self.classes_[codes]

    @checked_arguments
    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of each class, (n, k), in the order of `classes_`."""
        return self.predict_distribution(X).probabilities

    @checked_arguments
    def predict_distribution(self, X: Any) -> ClassPrediction:
        """Return the distributions of classes, with scores of their uncertainty.

        `mutual_information` and `logit_variance` of the result measure the uncertainty of the
        model. In most models, they are large at rows that differ from the training rows. Both are 0
        for one plain network. For ``class-laplace``, they can be small there; use `entropy`.

        Raises
        ------
        RequestError
            The estimator is not fitted, or a column is missing.
        DataError
            A value is missing or infinite, or the number of columns is not that of the fit.
        """
        self.check_fitted()
        x = self._inputs(X, fitted=True)
        return ClassPrediction.mixture([network.predict(x) for network in self.networks_])

    @checked_arguments
    def score(self, X: Any, y: ArrayLike) -> float:
        """Return the share of rows whose most probable class is y.

        Raises
        ------
        RequestError, DataError
            As in `predict_distribution`. Also DataError if the lengths of X and y differ.
        """
        predicted = self.predict(X)
        true = _labels(y, len(predicted))
        example, label = self.classes_.tolist()[0], true.tolist()[0]
        if isinstance(example, str) != isinstance(label, str):
            raise DataError(f"expected classes like {example!r}, found {label!r}.")
        return float((predicted == true).mean())

    @checked_arguments
    def save(self, path: Path | str) -> None:
        """Write the fitted estimator to a safetensors file; `geogp.load_model` reads this file.

        Raises
        ------
        RequestError
            The estimator is not fitted.
        OutputError
            The file cannot be written.
        """
        self.check_fitted()
        context = self.described()
        if self.columns is not None:
            context["params"]["columns"] = [plain(name) for name in self.columns]
        if self.classes is not None:
            context["params"]["classes"] = self.classes_.tolist()
        context["classes"] = self.classes_.tolist()
        context["fits"] = [[state.best_epoch, state.best_nll] for state in self.history_]
        save_models(self.networks_, path, context)

    @classmethod
    def restored(cls, networks: Sequence[Any], stored: StoredClasses, device: str) -> "ClassGP":
        """Return the estimator from the content of a file; `geogp.load_model` calls this."""
        estimator = cls(**{**stored.params, "device": device})
        estimator.check()
        sizes, classes = networks[0].architecture, np.asarray(stored.classes)
        described = estimator.model, len(stored.fits), len(classes), stored.n_features_in
        expected = networks[0].name, len(networks), sizes.classes, sizes.d
        if described != expected or len(np.unique(classes)) < len(classes):
            raise DataError(
                f"expected model, members, classes and inputs {expected}, found {described} with "
                f"the classes {value_shown(stored.classes)}"
            )
        estimator.classes_ = classes
        estimator.networks_ = [network.to(pick_device(device)) for network in networks]
        estimator.history_ = [FitState(best_epoch=e, best_nll=s) for e, s in stored.fits]
        estimator.n_features_in_ = stored.n_features_in
        if stored.feature_names_in:
            estimator.feature_names_in_ = np.asarray(stored.feature_names_in, object)
        return estimator

    def check(self) -> None:
        """Raise RequestError if a parameter is out of range, or the model is not one of classes."""
        self.check_kinds()
        one_of("model of classes", self.model, CLASS_MODELS)
        one_of("preset", self.preset, CLASS_PRESETS)
        one_of("scaling", self.scaling, SCALINGS)
        whole_number("members", self.members, 1, MAX_MEMBERS)

    def plan(self, rows: Data, classes: int, seed: int) -> FitPlan:
        """Return the settings of the fit of one member to training rows."""
        preset = self.adapted(CLASS_PRESETS[self.preset], len(rows.y))
        constant = rows.x.min(0) == rows.x.max(0)
        # If all columns are constant, `build` says so.
        dropped = () if constant.all() else tuple(f"x{at}" for at in np.flatnonzero(constant))
        d = rows.x.shape[1]
        sizes = Architecture(d, preset.h, preset.r, dropped=dropped, classes=classes)
        device = pick_device(self.device)
        return FitPlan(self.model, replace(preset, seed=seed), sizes, device, self.scaling)

    def _fitted(
        self, plan: FitPlan, rows: Data, chosen: Data, member: int
    ) -> tuple[Model, FitState]:
        if not self.verbose:
            return plan.fit(rows, chosen, warn=warn_caller)
        with FitProgress(f"{type(self).__name__} {member + 1} of {self.members}") as shown:
            return plan.fit(rows, chosen, warn=warn_caller, progress=shown.epoch)

    def _inputs(self, X: Any, *, fitted: bool) -> Floats:
        """Return the inputs of rows, (n, d); if fitted, those of the columns of the fit."""
        if isinstance(X, pd.DataFrame):
            usual = getattr(self, "feature_names_in_", X.columns) if fitted else X.columns
            names = list(usual if self.columns is None else self.columns)
            odd = [name for name in names if not isinstance(name, Hashable)]
            if odd:
                raise RequestError(f"expected columns= as names, found {value_shown(odd[0])}.")
            missing = [name for name in names if name not in X.columns]
            if missing:
                raise RequestError(
                    f"expected the columns {named(names)}, found no column {named(missing)}."
                )
            X = X[names].to_numpy()
            if not len(X):
                raise DataError("expected rows, found an empty table.")
        elif self.columns is not None:
            raise RequestError("expected a table, because `columns` names columns of a table.")
        x = as_floats(number_rows(X), "inputs X")
        if not x.shape[1]:
            raise DataError(
                f"expected columns, found 0 feature(s) (shape={x.shape}) while a minimum of 1 is "
                f"required."
            )
        width = getattr(self, "n_features_in_", None) if fitted else None
        if width is not None and x.shape[1] != width:
            raise DataError(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {width} "
                f"features as input."
            )
        return x

    def _coded(self, y: ArrayLike, n: int) -> tuple[NDArray[Any], Codes]:
        """Return the sorted classes (k,) and the code of each row (n,)."""
        labels = _labels(y, n)
        possible = labels
        if self.classes is not None:
            listed = list(self.classes)
            possible = _labels(listed, len(listed))
        classes = np.unique(possible)
        if len(classes) < 2:
            raise DataError(f"expected 2 classes or more, found one class: {classes.tolist()}.")
        also = np.setdiff1d(labels, classes).tolist()
        if also:
            raise DataError(f"expected the classes {classes.tolist()}, found also {also}.")
        return classes, np.searchsorted(classes, labels)

    def _validation_mask(self, codes: Codes) -> Mask:
        """Return a mask of the validation rows, (n,)."""
        if isinstance(self.validation, str) and self.validation == VALIDATION:
            return _tenth(codes, self.random_state)
        return mask_of(self.validation, len(codes), VALIDATION)


def _labels(y: ArrayLike, n: int) -> NDArray[Any]:
    """Return the class of each row, (n,)."""
    labels = column_of(y)
    if labels.shape != (n,):
        raise DataError(f"expected {n} classes, one for each row of X, found shape {labels.shape}.")
    if labels.dtype.kind == "O":
        if not all(isinstance(label, str) for label in labels):
            raise DataError(
                "Unknown label type: expected classes y of one kind, all text or all whole numbers."
            )
        labels = labels.astype(np.str_)
    if labels.dtype.kind == "f":
        whole = as_floats(labels, "classes y")
        if (whole != np.floor(whole)).any():
            raise DataError(
                "Unknown label type: continuous. Expected classes, found numbers that are not "
                "whole."
            )
    elif labels.dtype.kind not in "biuUT":
        raise DataError(f"expected classes as text or whole numbers, found {labels.dtype}.")
    return labels


def _tenth(codes: Codes, seed: int) -> Mask:
    """Return a mask of a random tenth of the rows of each class, at least one row in all.

    A class of five rows or fewer has no row in it.
    """
    rng = np.random.default_rng(seed)
    mask = np.zeros(len(codes), np.bool_)
    for code in np.unique(codes):
        rows = rng.permutation(np.flatnonzero(codes == code))
        mask[rows[: round(len(rows) / 10)]] = True
    if not mask.any():
        largest = np.bincount(codes).argmax()
        rows = np.flatnonzero(codes == largest)
        if len(rows) < 2:
            raise DataError(
                f"expected a class with 2 rows or more, found {len(codes)} rows of "
                f"{len(codes)} classes; none is left to choose the epoch."
            )
        mask[rng.choice(rows)] = True
    return mask
