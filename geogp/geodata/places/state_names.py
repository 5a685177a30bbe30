"""The states in the Census Bureau's boundaries: postal codes, FIPS numbers and names."""

from collections.abc import Iterable

from geogp.choices import nearest
from geogp.errors import RequestError, named, quoted

URBAN_VINTAGES = {"UACE20": 2020, "UACE10": 2010, "UA": 2000}
"""The census year of urban areas, for each column that only one census has."""

AUTO = "auto"

VINTAGE_CHOICES = (AUTO, "2020", "2010", "2000")
"""Values of ``--urban-vintage``; ``auto`` means the newest census in the source."""

INVENTED = "INVENTED"
"""Column of a file of states, true for a region that `geogp simulate` invented."""

_TABLE = """
AL 01 Alabama, AK 02 Alaska, AZ 04 Arizona, AR 05 Arkansas, CA 06 California, CO 08 Colorado,
CT 09 Connecticut, DE 10 Delaware, DC 11 District of Columbia, FL 12 Florida, GA 13 Georgia,
HI 15 Hawaii, ID 16 Idaho, IL 17 Illinois, IN 18 Indiana, IA 19 Iowa, KS 20 Kansas, KY 21 Kentucky,
LA 22 Louisiana, ME 23 Maine, MD 24 Maryland, MA 25 Massachusetts, MI 26 Michigan, MN 27 Minnesota,
MS 28 Mississippi, MO 29 Missouri, MT 30 Montana, NE 31 Nebraska, NV 32 Nevada, NH 33 New Hampshire,
NJ 34 New Jersey, NM 35 New Mexico, NY 36 New York, NC 37 North Carolina, ND 38 North Dakota,
OH 39 Ohio, OK 40 Oklahoma, OR 41 Oregon, PA 42 Pennsylvania, RI 44 Rhode Island,
SC 45 South Carolina, SD 46 South Dakota, TN 47 Tennessee, TX 48 Texas, UT 49 Utah, VT 50 Vermont,
VA 51 Virginia, WA 53 Washington, WV 54 West Virginia, WI 55 Wisconsin, WY 56 Wyoming,
AS 60 American Samoa, GU 66 Guam, MP 69 Commonwealth of the Northern Mariana Islands,
PR 72 Puerto Rico, VI 78 United States Virgin Islands
"""

PUBLIC_STATES = {
    code: (number, name)
    for code, number, name in (
        entry.strip().split(" ", 2) for entry in _TABLE.replace("\n", " ").split(",")
    )
}
"""FIPS number and name of each state, by postal code."""


def check_public_state(name: str) -> None:
    """Raise RequestError if a text is no postal code, FIPS number or name of a state."""
    wanted = name.strip().casefold()
    if not any(
        wanted in {code.casefold(), number, full.casefold()}
        for code, (number, full) in PUBLIC_STATES.items()
    ):
        known = unknown_state(name, ((full, code) for code, (_, full) in PUBLIC_STATES.items()))
        raise RequestError(f"{known} For a region of another source, give its --boundaries.")


def unknown_state(name: str, states: Iterable[tuple[str, str]]) -> RequestError:
    """Return the error for an unknown state; `states` are pairs of name and postal code."""
    labels: dict[str, str] = {}
    for full, code in states:
        labels[full.casefold()] = labels[code.casefold()] = f"{full} ({code})"
    near = nearest(name.strip().casefold(), labels, 4)
    nearest_labels = dict.fromkeys(labels[key] for key in near) or sorted(set(labels.values()))
    return RequestError(f"unknown region {quoted(name)}. Nearest: {named(nearest_labels)}.")
