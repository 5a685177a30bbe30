"""Which rows a place is conditioned on."""

import numpy as np

from geogp.models.field.vecchia import NO_ROW, Sites, earlier_rows


def test_places_are_conditioned_on_their_six_nearest_earlier_ones():
    """Against the definition, by all distances; the first ones of the order have fewer."""
    places = np.random.default_rng(0).uniform(-1, 1, (20, 2))
    sites = Sites.of(places)  # one row a place, so that rows are sites
    found = earlier_rows(sites, np.random.default_rng(1))
    chosen = [row[row != NO_ROW].tolist() for row in found]
    counts = np.array([len(one) for one in chosen])
    assert sorted(counts.tolist()) == [0, 1, 2, 3, 4, 5, *[6] * 14]
    distance = np.linalg.norm(sites.centre[:, None] - sites.centre, axis=2)
    order = [int(np.flatnonzero(counts == k)[0]) for k in range(6)]
    for k, place in enumerate(order):
        assert set(chosen[place]) == set(order[:k])
    for place, neighbours in enumerate(chosen):
        away = distance[place, neighbours]
        assert (np.diff(away) > 0).all()
        # None of the first six, which are earlier than all others, is nearer than the farthest.
        left_out = [one for one in order if one not in {*neighbours, place}]
        if counts[place] == 6:
            assert (distance[place, left_out] > away[-1]).all()
