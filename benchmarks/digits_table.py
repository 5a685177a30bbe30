"""The page of `digits.py`: the table, and what the papers report on other images."""


def page(figures):
    return ""
