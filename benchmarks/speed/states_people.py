"""Number of rows of a simulated state: population times the ratio in two known states."""

_COUNTED = """
AL 5_024_279  AK 733_391  AZ 7_151_502  AR 3_011_524  CA 39_538_223  CO 5_773_714
CT 3_605_944  DE 989_948  DC 689_545  FL 21_538_187  GA 10_711_908  HI 1_455_271
ID 1_839_106  IL 12_812_508  IN 6_785_528  IA 3_190_369  KS 2_937_880  KY 4_505_836
LA 4_657_757  ME 1_362_359  MD 6_177_224  MA 7_029_917  MI 10_077_331  MN 5_706_494
MS 2_961_279  MO 6_154_913  MT 1_084_225  NE 1_961_504  NV 3_104_614  NH 1_377_529
NJ 9_288_994  NM 2_117_522  NY 20_201_249  NC 10_439_388  ND 779_094  OH 11_799_448
OK 3_959_353  OR 4_237_256  PA 13_002_700  RI 1_097_379  SC 5_118_425  SD 886_667
TN 6_910_840  TX 29_145_505  UT 3_271_616  VT 643_077  VA 8_631_393  WA 7_705_281
WV 1_793_716  WI 5_893_718  WY 576_851
"""

PEOPLE = dict(zip(_COUNTED.split()[::2], map(int, _COUNTED.split()[1::2]), strict=True))
"""Resident population on 1 April 2020 (U.S. Census Bureau, 2020 Census Apportionment Results,
table 2); in total 331,449,281."""

KNOWN_ROWS = {"GA": 517_139, "NM": 133_512}
"""Mobile rows of 2019Q1 to 2023Q4."""

ROWS_A_PERSON = sum(KNOWN_ROWS.values()) / sum(PEOPLE[code] for code in KNOWN_ROWS)

KNOWN_QUARTERS = 20

FULLEST = 0.8
"""Largest share of a state's tiles times quarters that may have rows."""


def rows_of(code: str, scale: float = 1.0) -> int:
    """Return the number of rows of a state, times a scale for trials."""
    rows = KNOWN_ROWS.get(code, PEOPLE[code] * ROWS_A_PERSON)
    return max(1, round(scale * rows))


def rows_that_fit(rows: int, tiles: int, quarters: int) -> int:
    """Return the number of rows, limited by the number of tiles and quarters."""
    return min(rows, int(FULLEST * tiles * quarters))
