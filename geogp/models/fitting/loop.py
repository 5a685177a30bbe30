"""Training by mini-batches that keeps the best epoch, and can be stopped and continued."""

import hashlib
import logging
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from time import monotonic
from typing import Any, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from geogp.errors import DataError, NumericalError, RequestError
from geogp.models.fit_settings import FitSettings
from geogp.models.fitting.optimisers import (
    ParameterAverage,
    check_alike,
    checked_state,
    make_optimiser,
    restore_state,
    state_tensors,
)
from geogp.models.fitting.parallel import announcement, shared_step, tell, under
from geogp.models.fitting.recorded_steps import RecordedStep
from geogp.models.fitting.steps import Batch, Fit, SteppedFit
from geogp.models.numerics.devices import on_device
from geogp.models.numerics.linalg import deferred_checks, is_deferred
from geogp.models.numerics.teams import current_team
from geogp.models.numerics.tensor_files import read_tensors, write_tensors
from geogp.models.numerics.threads import one_core_each
from geogp.models.process.data import Data
from geogp.models.process.model import Model
from geogp.models.process.process import Process

logger = logging.getLogger(__name__)

FAR_LOSS = 1e6
"""Loss per datum at points where the objective is undefined."""

CHECKPOINT_SECONDS = 10.0
"""Shortest time between two checkpoints on disk; an interruption always writes one."""

MOST_JUDGING = 20_000
"""Largest number of validation rows that choose the epoch."""


@dataclass
class FitState:
    """Progress of a fit.

    `epoch`: number of finished epochs.
    `best_epoch`, `best_nll`: the epoch with the lowest mean log score of the validation rows that
        choose the epoch, and this score in the target's unit (after `solve_mean`, if that lowers
        it).
    `losses`, `validation_nll`: one value for each finished epoch.
    `seconds`: time of the finished epochs, summed over all calls, and of the end of the fit.
    """

    epoch: int = 0
    best_epoch: int = 0
    best_nll: float = math.inf
    losses: list[float] = field(default_factory=list)
    validation_nll: list[float] = field(default_factory=list)
    seconds: float = 0.0


Progress = Callable[[FitState, int], None]
"""A function that is called after every epoch, with the state and the number of epochs."""


def fit(
    process: Process,
    train: Data,
    validation: Data,
    settings: FitSettings,
    *,
    checkpoint: Path | None = None,
    progress: Progress | None = None,
) -> tuple[Model, FitState]:
    """Train a process in place; return the fitted model and the history of the fit.

    The model has the parameters of the best validation epoch. For most rows of the catalogue, it is
    the process itself; `Fit.finish` of the row says what it is. Inside a `team` block, the
    processes share each batch.

    `process`: an untrained process, on the device to train on.
    `train`, `validation`: rows to learn from, and rows that choose the epoch. If there are many
        validation rows, `MOST_JUDGING` random ones of them choose the epoch.
    `checkpoint`: file for the state of an unfinished fit. If the file exists, the fit continues
        from it, with the same results as without the interruption. The caller removes this file.

    Raises RequestError if the settings do not suit the objective, and the error of
    `Process.check`. Raises DataError if there are fewer than 2 rows, the target is constant,
    or the checkpoint belongs to another fit. Raises NumericalError if the loss or the validation
    score is no longer finite.
    """
    process.check()
    if len(train.y) < 2:
        raise DataError("expected at least 2 training rows, found 1.")
    if train.y.min() == train.y.max():
        raise DataError(
            f"the target has the same value in all {len(train.y)} training rows; "
            "there is nothing to learn."
        )
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        centre, spread = float(train.y.mean()), float(train.y.std())
    if not (math.isfinite(centre) and 0 < spread < math.inf):
        raise DataError(
            f"the target's standard deviation is {spread:g} in double precision; use another "
            f"unit for the target, so that its standard deviation is near 1."
        )
    team = current_team()
    if team.leads and team.size > 1:
        tell(team, announcement(process, train, validation, settings))
    process.take_target(train.y)
    fit_of_rows: Fit[Any] = process.make_fit(process)
    if (stepped := fit_of_rows.stepped) is None:
        return _in_closed_form(fit_of_rows, train, validation, settings)
    with one_core_each() if stepped.one_core_each else nullcontext():
        run = _Run(stepped, train, validation, settings, checkpoint)
        run.resume()
        try:
            while run.state.epoch < settings.epochs and not run.out_of_patience():
                run.epoch()
                if progress is not None:
                    progress(run.state, settings.epochs)
        except KeyboardInterrupt:
            run.save()
            raise
        run.save()
        return run.finish(), run.state


def _in_closed_form(
    fit_of_rows: Fit[Any], train: Data, validation: Data, settings: FitSettings
) -> tuple[Model, FitState]:
    """Return the model of a fit without steps, and a history with the validation score alone."""
    started, process = monotonic(), fit_of_rows.process
    if settings.solve_mean:
        _refuse_solved_mean(process)
    fit_of_rows.start(process.as_rows(train), settings.seed)
    model = fit_of_rows.finish(process.as_rows(validation))
    predicted = model.predict(validation.x, validation.tests, validation.devices)
    score = float(predicted.log_score(validation.y).mean())
    if not math.isfinite(score):
        raise NumericalError(f"the validation score of the fit is {score}.")
    return model, FitState(best_nll=score, seconds=monotonic() - started)


def _refuse_solved_mean(process: Process) -> NoReturn:
    raise RequestError(
        f"expected solve_mean=False, because the posterior of {process.name} does not support "
        "solve_mean=True."
    )


class _Run:
    """One fit in progress: tensors on the device, optimiser, best epoch so far."""

    def __init__(
        self,
        stepped: SteppedFit[Any],
        train: Data,
        validation: Data,
        settings: FitSettings,
        checkpoint: Path | None,
    ) -> None:
        self.fit, self.settings, self.path = stepped, settings, checkpoint
        self.process: Process = stepped.process
        self.team = current_team()
        if settings.solve_mean and not stepped.can_solve_mean:
            _refuse_solved_mean(self.process)
        self._start(train)
        self.held_out = self.process.as_rows(validation)
        self.train, self.validation = train, validation
        self.judging = _judging(len(validation.y))
        self.optimiser = make_optimiser(stepped, settings)
        self._must_check = False
        self.rate_factor: float | None = None
        self.recorded = RecordedStep(self.optimiser, self.process.device)
        self.placed = stepped.placed(settings.batch)
        n = stepped.rows.n
        size = stepped.batch_rows(settings.batch, n)
        self.average = ParameterAverage(self.process, settings.average * math.ceil(n / size))
        self.identity = self._identify()
        self.state = FitState()
        self.best = _clone(stepped.state())
        self.kept: dict[str, Tensor] = {}
        self.kept_state: dict[str, Any] = {}
        self.saved_at = monotonic()

    def _start(self, train: Data) -> None:
        """Start the fit; all processes use the start values of the first."""
        resumed = not self.team.leads or (self.path is not None and self.path.exists())
        self.fit.start(self.process.as_rows(train), self.settings.seed, resumed=resumed)
        if self.team.size > 1:
            state = self.fit.state()
            self.fit.restore(tell(self.team, (state, {}) if self.team.leads else None)[0])

    def finish(self) -> Model:
        """Return the fitted model, with the parameters of the best epoch."""
        # Gradients of a recorded step would hold its memory.
        self.optimiser.zero_grad(set_to_none=True)
        started = monotonic()
        self.fit.restore(self.best)
        if self.settings.solve_mean:
            self.solve_mean()
        model = self.fit.finish(self.held_out)
        self.state.seconds += monotonic() - started
        return model

    def epoch(self) -> None:
        """Train on all rows once, in an order that depends only on the seed and the epoch."""
        settings, state = self.settings, self.state
        started = monotonic()
        rng = np.random.default_rng([settings.seed, state.epoch])
        share = (state.epoch + 1) / settings.epochs
        batches = self.fit.batches(settings.batch, rng, share)
        if settings.optimiser == "lbfgs" and len(batches) > 1:
            raise RequestError(
                f"L-BFGS needs an objective over all rows at once; {self.process.name} makes "
                f"{len(batches)} steps per epoch. Choose the optimiser adamw."
            )
        loss = self._train(batches)
        with self.average.in_place():
            score = self._validate(share)
            if score < state.best_nll and self.fit.complete(share):
                state.best_nll, state.best_epoch = score, state.epoch + 1
                self.best = _clone(self.fit.state())
        if not (math.isfinite(loss) and math.isfinite(score)):
            raise NumericalError(
                f"the fit diverged in epoch {state.epoch + 1}: loss {loss}, validation {score}. "
                "Lower the learning rate."
            )
        state.epoch += 1
        state.losses.append(loss)
        state.validation_nll.append(score)
        state.seconds += monotonic() - started
        self._keep()

    def _train(self, batches: list[Batch]) -> float:
        """Make the steps of an epoch; return the mean loss.

        On a GPU, the checks of AdamW steps are deferred, so that no step waits. If one fails, the
        loss is NaN, the epoch is made again from its start, and all later steps have checks.
        """
        on_cpu = self.process.device.type == "cpu"
        if on_cpu or self.settings.optimiser == "lbfgs" or self._must_check:
            return self._steps(batches)
        state, average = _clone(self.fit.state()), _clone(self.average.tensors())
        optimiser = _clone(state_tensors(self.optimiser))
        with deferred_checks():
            loss = self._steps(batches)
        if math.isfinite(loss):
            return loss
        self._must_check = True
        self.fit.restore(state)
        self.average.load(average)
        self.optimiser.state.clear()
        restore_state(self.optimiser, optimiser, self.state.epoch)
        return self._steps(batches)

    def _steps(self, batches: list[Batch]) -> float:
        total = torch.zeros((), dtype=torch.float64, device=self.process.device)
        for step, batch in enumerate(batches):
            self._set_rate((self.state.epoch + step / len(batches)) / self.settings.epochs)
            total += self._update(batch) * batch.n
        return float(total) / sum(batch.n for batch in batches)

    def solve_mean(self) -> None:
        """Replace the mean of the weights by `condition` if that lowers the validation score."""
        state = self.state
        m, _ = self.process.posterior.weights()
        with torch.no_grad():
            before, score = m.clone(), math.inf
            try:
                m.copy_(self.fit.process.conditioned(self.fit.rows)[0])
                score = self._validate(1.0)
            except NumericalError as error:
                logger.warning("the learned mean of the weights is not replaced: %s", error)
            if score < state.best_nll:
                state.best_nll = score
            else:
                m.copy_(before)

    def out_of_patience(self) -> bool:
        """Return whether the validation score has not improved for `patience` epochs."""
        patience = self.settings.patience
        return patience is not None and self.state.epoch - self.state.best_epoch >= patience

    def resume(self) -> None:
        """Continue from the checkpoint, if there is one."""
        tensors, described = tell(self.team, self._stored() if self.team.leads else None)
        if not described:
            self._keep()
            return
        try:
            self.state = FitState(**checked_state(described, self.settings.epochs))
            self.fit.restore(self._own(under(tensors, "model.")))
            self.best = _clone(self._own(under(tensors, "best.")))
            check_alike(self.best, self.fit.state())
            self.average.load(under(tensors, "average."))
            restore_state(self.optimiser, under(tensors, "optimiser."), self.state.epoch)
        except (LookupError, TypeError, ValueError, RuntimeError) as error:
            raise DataError(
                f"the checkpoint {self.path} does not match its model ({error}). Start over with "
                "--fresh."
            ) from error
        self._keep()

    def _own(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the tensors of the fit's state; earlier versions also stored training rows."""
        return {name: tensors[name] for name in self.fit.state()}

    def _stored(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Read the checkpoint of this fit; return empty dictionaries if there is none."""
        if self.path is None or not self.path.exists():
            return {}, {}
        tensors, described = read_tensors(self.path)
        if described.pop("identity", None) != self.identity:
            raise DataError(
                f"the checkpoint {self.path} belongs to another fit (other data, model or "
                "settings). Start over with --fresh."
            )
        return tensors, described

    def save(self) -> None:
        """Write the state after the last finished epoch."""
        if self.path is not None:
            described = {**self.kept_state, "identity": self.identity}
            write_tensors(self.path, self.kept, described)
            self.saved_at = monotonic()

    def _keep(self) -> None:
        """Copy the state after an epoch; write the copy after `CHECKPOINT_SECONDS` seconds."""
        if self.path is None:
            return
        groups = {
            "model": self.fit.state(),
            "best": self.best,
            "average": self.average.tensors(),
            "optimiser": state_tensors(self.optimiser),
        }
        kept = {f"{name}.{k}": v for name, group in groups.items() for k, v in group.items()}
        self.kept, self.kept_state = _clone(kept), asdict(self.state)
        if monotonic() - self.saved_at > CHECKPOINT_SECONDS:
            self.save()

    def _identify(self) -> str:
        """Return a text that identifies this fit: model, settings and data."""
        digest = hashlib.sha256()
        for data in (self.train, self.validation):
            for values in (data.x, data.y, data.counts, data.groups):
                digest.update(repr(values.shape).encode() + values.tobytes())
        if len(self.judging) < len(self.validation.y):
            digest.update(self.judging.tobytes())
        for buffer in (self.process.x_low, self.process.x_high):
            digest.update(buffer.cpu().numpy().tobytes())
        described = (self.process.name, self.process.architecture, self.settings)
        return f"{described!r} {digest.hexdigest()}"

    def _update(self, batch: Batch) -> Tensor:
        if self.settings.optimiser == "lbfgs":
            closure = self._guarded(batch)
            loss = torch.as_tensor(self.optimiser.step(closure), dtype=torch.float64)
        elif self.fit.same_kernels and self.team.size == 1 and is_deferred(self.fit.rows.x):
            loss = self.recorded(self._move, self.placed(batch))
        else:
            loss = self._move(batch)
        self.average.update()
        return loss

    def _move(self, batch: Batch) -> Tensor:
        loss = self._learn(batch)
        if self.settings.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.process.parameters(), self.settings.clip)
        self.optimiser.step()
        return loss

    def _guarded(self, batch: Batch) -> Callable[[], float]:
        """Return the objective for a line search, with a large value where it is undefined.

        At undefined points, the gradient is 0. The objective must be defined at the starting point.
        """
        started = False

        def evaluate() -> float:
            nonlocal started
            try:
                loss = float(self._learn(batch))
            except NumericalError:
                if not started:
                    raise
                loss = math.nan
            if started and not math.isfinite(loss):
                for value in self.process.parameters():
                    if value.requires_grad:
                        value.grad = torch.zeros_like(value)
                return FAR_LOSS
            started = True
            return loss

        return evaluate

    def _learn(self, batch: Batch) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        return shared_step(self.fit, batch, self.settings.weights, self.team)

    def _validate(self, share: float) -> float:
        self.fit.update_closed_forms(self.held_out)
        n = len(self.judging)
        own = self.judging[self.team.own(n)]
        scores = np.zeros(0)
        if len(own):
            rows = self.held_out.at(on_device(own, self.process.device))
            scores = self.fit.predicted(rows, share).log_score(self.validation.y[own])
        if self.team.size == 1:
            return float(scores.mean())
        total = torch.tensor(scores.sum(), dtype=torch.float64, device=self.process.device)
        return float(self.team.total(total)) / n

    def _set_rate(self, share: float) -> None:
        settings = self.settings
        if settings.optimiser == "lbfgs":
            return
        factor = 0.5 * (1 + math.cos(math.pi * share)) if settings.decay == "cosine" else 1.0
        if factor == self.rate_factor:
            return
        self.rate_factor = factor
        for group in self.optimiser.param_groups:
            group["lr"].fill_(settings.learning_rate * factor * group["rate"])


def _judging(n: int) -> NDArray[np.int64]:
    """Return the numbers of the validation rows that choose the epoch; the same for all seeds."""
    if n <= MOST_JUDGING:
        return np.arange(n)
    return np.sort(np.random.default_rng(4).permutation(n)[:MOST_JUDGING])


def _clone(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in tensors.items()}
