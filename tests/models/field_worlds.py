"""Fields with given parameters, made of rows without a fit."""

from geogp.models.field.conditioning import information_in
from geogp.models.field.fit import FieldFit
from geogp.models.field.fitted import FittedField
from geogp.models.field.parameters import FieldParameters, WeightPosterior
from geogp.models.process.posteriors import posterior_of
from geogp.models.process.rows import Rows


def field_of(parameters: FieldParameters, rows: Rows, seed: int = 0) -> FittedField:
    """Return a field of parameters and rows that has learned nothing else."""
    fit = FieldFit(parameters)
    fit.start(rows, seed, resumed=True)
    return fit.field


def weights_given_rows(field: FittedField) -> WeightPosterior:
    """Return the posterior of the weights given the rows, in double precision."""
    return WeightPosterior(*posterior_of(information_in(field.parameters, field.rows)))
