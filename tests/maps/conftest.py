import pytest
from maps_worlds import irregular_region, make_slices, make_world


@pytest.fixture(scope="session")
def world():
    return make_world(irregular_region(), 14)


@pytest.fixture(scope="session")
def latency_world():
    return make_world(irregular_region(urban=False), 12, "latency")


@pytest.fixture(scope="session")
def slices(world):
    return make_slices(world.tiles)
