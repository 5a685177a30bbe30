"""Types of the names, texts and numbers in run.json, with the allowed ranges."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta

from geogp.choices import MAX_SEED
from geogp.evaluation.conformal.repair_methods import METHODS
from geogp.evaluation.scores import LARGEST, LARGEST_WHOLE, Real
from geogp.evaluation.splits.split_names import SPLITS
from geogp.geodata.tiles.quadkeys import ZOOM
from geogp.geodata.tiles.targets import JOINED, SERVICES, TARGETS
from geogp.geodata.tiles.thresholds import LEAST, MOST
from geogp.models.names import CLASS_MODELS, MODELS
from geogp.models.presets import PRESETS
from geogp.records import record_names

if TYPE_CHECKING:  # mypy does not accept names from tables in Literal
    Service = str
    Target = str
    PresetText = str
    Split = str
    QuestionText = str
    Method = str
    VarianceReason = str
    ModelText = str
else:
    Service = Literal[tuple(SERVICES)]
    Target = Literal[(*TARGETS, *JOINED)]
    PresetText = Literal[tuple(PRESETS)]
    Split = Literal[tuple(SPLITS)]
    QuestionText = Literal[(*record_names.QUESTIONS, *record_names.OTHER_QUESTIONS)]
    Method = Literal[tuple(METHODS)]
    VarianceReason = Literal[
        record_names.NOISE_IN_SPREAD, record_names.STEPS, record_names.POINT, record_names.FIELD
    ]
    ModelText = Annotated[
        Literal[tuple(MODELS | CLASS_MODELS)], Meta(description="a model that `geogp models` lists")
    ]

Text = Annotated[str, Meta(pattern="^[^\\u0000]*$", description="text")]
Name = Annotated[str, Meta(pattern="^[^\\u0000]*[^\\s\\u0000][^\\u0000]*$", description="a name")]
Place = Annotated[
    str,
    Meta(
        # Operating systems refuse longer names of files.
        pattern="^[^\\u0000/]{0,255}(/[^\\u0000/]{0,255})*$",
        description="a path or an address",
    ),
]
Quarter = Annotated[
    str, Meta(pattern="^[0-9]{4}Q[1-4]$", max_length=6, description="a quarter like 2019Q1")
]
Sha256 = Annotated[
    str, Meta(pattern="^[0-9a-f]{64}$", max_length=64, description="a SHA-256 of 64 digits")
]
AboveZero = Annotated[float, Meta(gt=0, le=LARGEST)]
Some = Annotated[int, Meta(ge=1, le=LARGEST_WHOLE)]
Zoom = Annotated[int, Meta(ge=1, le=ZOOM)]
Seed = Annotated[int, Meta(ge=0, le=MAX_SEED)]
Nanoseconds = Annotated[int, Meta(ge=0, le=2**63 - 1, description="a whole number of 0 or more")]
Rank = Annotated[Some | Literal["budget"], Meta(description="a rank, or budget")]
WeightsAsked = Annotated[
    dict[str, Real] | Literal["validation"], Meta(description="weights by name, or validation")
]
ThresholdValue = Annotated[float, Meta(ge=LEAST, le=MOST)]

BY_SPLIT = Meta(extra_json_schema={"propertyNames": {"enum": list(SPLITS)}})
"""Adds the names of splits to the JSON Schema, as the only allowed keys of a mapping."""
