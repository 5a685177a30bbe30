"""The faults that `mutants.py` puts into geogp, by layer, and the tests that should see them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """A fault: a piece of code that occurs once in a file, and its replacement."""

    layer: str
    name: str
    path: str
    code: str
    fault: str
    tests: tuple[str, ...]


def _of(path: str, *tests: str, **faults: tuple[str, str]) -> list[Mutant]:
    """Return the mutants of one file; their names are those of the arguments.

    The layer is the file's folder in geogp, or in its `models`.

    Tests are files (`maps/test_frame`) or a test or class in one (`maps/test_frame::test_it`).
    """
    layer = path.removeprefix("models/").partition("/")[0]
    parts = (test.partition("::") for test in tests)
    places = tuple(f"tests/{file}.py{colons}{name}" for file, colons, name in parts)
    return [
        Mutant(layer, name.replace("_", " "), f"geogp/{path}.py", code, fault, places)
        for name, (code, fault) in faults.items()
    ]


MUTANTS = [
    # Predictive distributions
    *_of(
        "distributions/prediction",
        "distributions/test_prediction",
        variance_without_noise=(
            "return self.function_variance + self.noise_variance",
            "return self.function_variance + 0 * self.noise_variance",
        ),
        interval_of_half_the_tail=("(1 - level) / 2), self", "(1 - level) / 4), self"),
        log_score_with_the_sd=("0.5 * np.log(self.variance)", "np.log(self.variance)"),
        crps_without_scale=("return self.sd * self.shape.crps", "return self.shape.crps"),
        exceedance_of_the_wrong_side=(
            "return self.shape.survival(self._standard(threshold))",
            "return self.shape.cdf(self._standard(threshold))",
        ),
    ),
    *_of(
        "distributions/prediction",
        "models/fitting/test_few_rows::test_a_widened_model_is_normal_and_so_many_times_as_wide",
        widened_by_the_factor_alone=("factor**2 * getattr", "factor * getattr"),
    ),
    *_of(
        "distributions/prediction",
        "distributions/test_shapes::test_a_prediction_takes_its_shape",
        field_variance_with_the_tile=(
            "return self.function_variance - self.tile_variance",
            "return self.function_variance",
        ),
    ),
    *_of(
        "distributions/sinh_arcsinh",
        "distributions/test_shapes",
        skewness_with_the_wrong_sign=(
            "np.sinh((np.arcsinh(z) + skewness) / tailweight)",
            "np.sinh((np.arcsinh(z) - skewness) / tailweight)",
        ),
        density_without_its_slope=(
            "slope = 0.5 * (np.log1p(z**2) - np.log1p(w**2))",
            "slope = 0.0 * (np.log1p(z**2) - np.log1p(w**2))",
        ),
        crps_without_the_spread=(
            "2 * self._partial(inside) - self._half_spread",
            "2 * self._partial(inside)",
        ),
    ),
    # Tiles and places
    *_of(
        "geodata/tiles/quadkeys",
        "geodata/tiles/test_quadkeys",
        bounds_half_a_tile_east=("/ (1 << zoom) * 360 - 180", "/ (1 << zoom) * 360 - 179.997"),
        rows_from_the_south=(
            "row = (0.5 - np.arctanh(sine) / (2 * np.pi))",
            "row = (0.5 + np.arctanh(sine) / (2 * np.pi))",
        ),
        ranges_one_tile_short=("+ span - 1])", "+ span - 2])"),
        columns_do_not_wrap=(
            "np.asarray(column, np.int64) % (1 << zoom)",
            "np.asarray(column, np.int64)",
        ),
        areas_at_the_equator=("(side_km * cosine) ** 2", "side_km**2 + 0 * cosine"),
    ),
    *_of(
        "geodata/tiles/quarters",
        "geodata/tiles/test_quarters",
        range_without_its_last_quarter=("range(start, stop + 1)", "range(start, stop)"),
        quarters_from_zero=("{index % 4 + 1}", "{index % 4}"),
    ),
    *_of(
        "geodata/tiles/tiers",
        "geodata/tiles/test_tiers",
        one_threshold_of_a_tier_is_enough=(
            "np.logical_and.reduce(met)",
            "np.logical_or.reduce(met)",
        ),
        tiers_in_the_order_of_the_targets=(
            "speeds = [name for name in TOGETHER if",
            "speeds = [name for name in targets if",
        ),
        latency_is_no_limit=('"at_most" if one.at_most else "at_least"', '"at_least"'),
    ),
    *_of(
        "evaluation/joint_scores",
        "answers/test_run_of_several::test_stored_predictions_give_the_scores_of_the_record",
        first_target_in_place_of_another=('own = {"y": y[:, k],', 'own = {"y": y[:, 0],'),
    ),
    *_of(
        "maps/target_layers",
        "answers/test_run_of_several::test_the_map_has_tiers_and_further_targets",
        tiers_of_nothing=("tier.probability(joint), about)", "1 - tier.probability(joint), about)"),
    ),
    *_of(
        "geodata/tiles/tile_rows",
        "geodata/tiles/test_ookla",
        "geodata/tiles/test_observations",
        value_not_divided=(".astype(np.float64) / target.divisors[place]", ".astype(np.float64)"),
        more_devices_than_tests_accepted=("(devices <= tests)", "(devices >= 0)"),
        rows_of_the_region_box=(
            "region.contains(*quadkeys.tile_centres(*quadkeys.codes_to_tiles(codes)))",
            "codes >= 0",
        ),
    ),
    *_of(
        "geodata/places/region",
        "geodata/places/test_antimeridian",
        pieces_not_turned_back=(
            "xoff=-360 * turn) if turn else piece",
            "xoff=-359 * turn) if turn else piece",
        ),
    ),
    # Splits, scores, calibration
    *_of(
        "evaluation/splits/row_parts",
        "evaluation/splits/test_split_rows",
        validation_is_tested_too=(
            "names[(first + tested) % parts] = VALIDATION",
            "names[(first + tested) % parts] = TEST",
        ),
        rows_dealt_without_their_number=("(count + int(rows[group]), part)", "(count + 1, part)"),
        seed_not_used=(
            "_mix(np.array([int(seed) % 2**64], np.uint64))",
            "_mix(np.zeros(1, np.uint64))",
        ),
    ),
    *_of(
        "evaluation/splits/split_rows",
        "evaluation/splits/test_split_rows",
        "evaluation/splits/test_split_folds",
        buffer_measured_from_the_used_rows=(
            "longitude[used], latitude[used], longitude[test], latitude[test]",
            "longitude[used], latitude[used], longitude[used], latitude[used]",
        ),
        latest_learns_from_the_tested_quarter=(
            "np.where(quarter < tested, earlier,",
            "np.where(quarter <= tested, earlier,",
        ),
        cells_of_another_size=("CELL_DEGREES / 2**halvings", "CELL_DEGREES / 3**halvings"),
    ),
    *_of(
        "evaluation/metrics",
        "evaluation/test_metrics",
        lower_end_left_open=("(lower <= y) & (y <= upper)", "(lower <= y)"),
        rmse_without_the_root=(
            'np.sqrt((rows["error"].to_numpy() ** 2).mean())',
            '(rows["error"].to_numpy() ** 2).mean()',
        ),
        pit_shifted_by_a_bin=("place = pit * bins", "place = pit * bins + 1"),
        binomial_tail_of_one_side=("tail = (1 - level) / 2", "tail = 1 - level"),
        baseline_the_other_way=("else value - other", "else other - value"),
    ),
    *_of(
        "evaluation/scores",
        "evaluation/test_metrics",
        pooled_without_weights=("rows * value**power", "value**power"),
    ),
    *_of(
        "evaluation/conformal/conformal_repair",
        "evaluation/conformal/test_conformal_repair",
        rank_without_the_new_row=(
            "math.ceil((m + 1) * level - 1e-9)",
            "math.ceil(m * level - 1e-9)",
        ),
        quantile_one_rank_low=("ordered[k - 1]", "ordered[k - 2]"),
        signed_scores=(
            "np.abs(prediction.shape.normal_score((y - prediction.mean) / prediction.sd))",
            "prediction.shape.normal_score((y - prediction.mean) / prediction.sd)",
        ),
    ),
    # Objectives, posteriors, linear algebra
    *_of(
        "models/process/objectives",
        "models/process/test_objectives",
        nll_without_the_log_variance=(
            "(math.log(2 * math.pi) + variance.log() + square / variance)",
            "(math.log(2 * math.pi) + square / variance)",
        ),
        elbo_without_kl=(
            "return _expected_nll(terms, y, terms.residual) + terms.kl / n",
            "return _expected_nll(terms, y, terms.residual)",
        ),
        kl_weighted_by_the_batch=(
            "weights.alpha * trace + weights.beta / n",
            "weights.alpha * trace + weights.beta / len(y)",
        ),
        trace_with_the_wrong_sign=("+ weights.alpha * trace", "- weights.alpha * trace"),
        ppgp_without_the_residual=(
            "terms.function_variance + terms.residual + terms.noise_var",
            "terms.function_variance + terms.noise_var",
        ),
        largest_norm_of_the_mean=(
            "current_team().largest(terms.feature_norm, terms.rows) - terms.feature_norm",
            "terms.feature_norm.mean() - terms.feature_norm",
        ),
        expected_nll_without_the_variance=(
            "terms.square(y) + terms.function_variance + missed",
            "terms.square(y) + missed",
        ),
    ),
    *_of(
        "models/process/objectives",
        "models/papers/test_cox::test_poisson_elbo_is_the_integral_over_the_function",
        poisson_rate_without_its_variance=(
            "(log_rate + 0.5 * spread).exp()",
            "log_rate.exp()",
        ),
    ),
    *_of(
        "models/process/objectives",
        "models/process/test_exact::TestMarginalLikelihood",
        evidence_with_n_for_its_rest=("(sums.n - r) * noise.log()", "sums.n * noise.log()"),
    ),
    *_of(
        "models/process/posteriors",
        "models/process/test_posteriors",
        kl_without_the_rank=("return 0.5 * (squares - len(m))", "return 0.5 * squares"),
        kl_with_the_wrong_log=("-2 * log_diagonal", "2 * log_diagonal"),
    ),
    *_of(
        "models/process/posteriors",
        "models/process/test_exact::TestCondition",
        rows_not_weighted=(
            "weighted = phi.double() / variance",
            "weighted = phi.double() / variance.mean() + 0 * variance",
        ),
    ),
    *_of(
        "models/process/lowrank",
        "models/process/test_lowrank::test_far_away_the_sparse_gp_returns_to_its_prior",
        "models/process/test_lowrank::test_prediction_by_hand",
        noise_in_the_level=(
            "noise = torch.zeros_like(variance) if level else self.noise().double()",
            "noise = self.noise().double()",
        ),
        variance_scaled_by_the_sd=(
            "variance * scale, noise.expand_as(variance) * scale",
            "variance * self.y_sd, noise.expand_as(variance) * scale",
        ),
        mean_without_its_constant=(
            "(self.mean_constant.double() + marginals.mean)",
            "marginals.mean",
        ),
    ),
    *_of(
        "models/process/rows",
        "models/process/test_repeats::test_counts_means_and_scatter_by_hand",
        scatter_of_repeats_lost=(
            "torch.bincount(inverse, square) / count",
            "0 * torch.bincount(inverse, square) / count",
        ),
    ),
    *_of(
        "models/numerics/linalg",
        "models/numerics/test_linalg",
        jitter_not_scaled=("scale, alpha=used)", "1.0, alpha=used)"),
    ),
    *_of(
        "models/numerics/linalg",
        "models/numerics/test_products::TestBlocks",
        inverse_not_negated=("out[second, first].neg_()", "out[second, first]"),
    ),
    # Bases and kernels
    *_of(
        "models/process/rows",
        "devices/test_models_on_second_device::test_no_step_waits_with_four_rows_at_each_input",
        number_of_rows_asked_of_the_gpu=("repeats, total=len(self.y))", "repeats, total=None)"),
    ),
    *_of(
        "models/fitting/steps",
        "devices/test_models_on_second_device::test_no_step_waits_with_four_rows_at_each_input",
        rows_of_a_step_counted_on_the_gpu=(
            "self.backward(self.rows.at(batch.numbers, batch.n),",
            "self.backward(self.rows.at(batch.numbers),",
        ),
    ),
    *_of(
        "models/fitting/steps",
        "models/process/test_exact",
        largest_norm_of_every_chunk=("by_largest * (peak == index)", "by_largest * (peak >= 0)"),
    ),
    *_of(
        "models/fitting/loop",
        "devices/test_recorded_steps::test_rates_are_filled_when_they_change",
        rates_filled_in_each_step=("if factor == self.rate_factor:", "if factor is None:"),
    ),
    *_of(
        "models/fitting/loop",
        "models/fitting/test_training_loop",
        first_rate_not_filled=(
            "self.rate_factor: float | None = None",
            "self.rate_factor: float | None = 1.0",
        ),
    ),
    *_of(
        "models/numerics/threads",
        "models/numerics/test_threads",
        all_gpus_seeded=("torch.default_generator.manual_seed(seed)", "torch.manual_seed(seed)"),
    ),
    *_of(
        "models/process/rbf_readers",
        "models/process/test_rbf_readers",
        gpu_searches_for_few_rows=("or rows >= WORTH_SEARCHING * r", "or rows >= 0"),
    ),
    *_of(
        "models/fitting/recorded_steps",
        "devices/test_recorded_steps",
        recorded_rows_never_change=("recorded.numbers.copy_(batch.numbers)", "recorded.numbers"),
        slower_way_is_kept=("if recorded > alone:", "if recorded < alone:"),
    ),
    *_of(
        "models/process/rbf",
        "models/process/test_rbf",
        distances_doubled=(
            "[B, B.new_ones(len(B), 1), -0.5 * squared_norms(B)[:, None]]",
            "[B, B.new_ones(len(B), 1), -1.0 * squared_norms(B)[:, None]]",
        ),
        anchors_not_scaled=("Z = scaled[len(rows) :]", "Z = anchors.double()"),
    ),
    *_of(
        "models/papers/mixed_nystrom/nystrom",
        "models/papers/test_nystrom::test_as_many_anchors_as_rows_are_the_exact_process",
        "models/papers/test_nystrom::test_the_kernel_sees_half_the_inputs",
        residual_without_the_prior=(
            "checked_residual(variance - norm, variance)",
            "checked_residual(norm, variance)",
        ),
        inputs_not_halved=("INPUT_SCALE = 0.5", "INPUT_SCALE = 1.0"),
    ),
    # The field model
    *_of(
        "models/field/tile_process",
        "models/field/test_vecchia",
        "models/field/test_field_model",
        fading_without_time=("b[[5, 8]]", "b[[5, 7, 8]]"),
        later_in_every_tile=("decays[2].mul_(same)", ""),
    ),
    *_of(
        "models/field/blocks",
        "models/field/test_field_rows",
        whole_diagonal_in_the_gradient=(".sub_(by_scale).div_(2)", ".sub_(by_scale)"),
        gradient_of_the_padding=(".mul_(torch.where(known, -1.0, 0.0)[:, None])", ".neg_()"),
        scale_without_the_amplitude=("torch.dot(log_amplitude, rows.own)", "0 * rows.own.sum()"),
    ),
    *_of(
        "models/field/tile_process",
        "models/field/test_tile_process",
        separable_range=("log_r - q / 2 * log_psi", "log_r - 0 * q * log_psi"),
        stretched_the_other_way=("odd * b, even - odd * a", "odd * b, even + odd * a"),
        gradient_of_one_triangle=("gradient + gradient.mT", "gradient + gradient"),
        derivative_by_the_other_range=("torch.neg(second[1], out", "torch.neg(first[1], out"),
        shared_pairs_of_one_triangle=("torch.maximum(distinct, distinct.T)", "distinct"),
    ),
    *_of(
        "models/field/tile_process",
        "models/field/test_tile_process::test_providers_share_one_part_and_have_another",
        own_part_of_every_provider=("+ second * same", "+ second"),
    ),
    *_of(
        "answers/providers",
        "answers/test_providers",
        providers_added=("law(unit[a] - unit[b])", "law(unit[a] + unit[b])"),
    ),
    *_of(
        "models/field/vecchia",
        "models/field/test_vecchia",
        noise_added_twice=("torch.where(known, noise, 1.0)", "torch.where(known, 2 * noise, 1.0)"),
        later_rows_are_neighbours=(
            "before = near < rank[:, None]",
            "before = near != rank[:, None]",
        ),
    ),
    *_of(
        "models/field/vecchia",
        "models/field/test_vecchia::TestDistanceToOthers",
        own_place_counted=(
            "itself = (distance[:, :1] < SAME_TILE_KM).astype(np.int64)",
            "itself = np.zeros((len(distance), 1), np.int64)",
        ),
    ),
    *_of(
        "models/field/vecchia",
        "models/field/test_field_model::TestNeighbours",
        places_counted_as_rows=("math.ceil(most / rows)", "math.ceil(most)"),
    ),
    *_of(
        "models/field/predictive_law",
        "models/field/test_predictive_law",
        networks_summed=(".numpy() / NETWORKS)", ".numpy())"),
        networks_left_out=(" + self.outputs @ units", " + 0 * self.outputs @ units"),
        laws_compared_where_they_were_fitted=(
            "errors.at(fold != k), errors.at(fold == k)",
            "errors.at(fold == k), errors.at(fold == k)",
        ),
    ),
    *_of(
        "models/field/measurement",
        "models/field/test_field_model",
        level_of_the_median_average=(
            "tests[order].cumsum(0)",
            "torch.full_like(tests, tests.mean()).cumsum(0)",
        ),
    ),
    *_of(
        "models/field/predictive_law",
        "models/field/test_near_network",
        spread_between_predictions_left_out=(
            "between = share * (1 - share) *",
            "between = 0 * share * (1 - share) *",
        ),
        shares_exchanged=("(1 - share) * x + share * y", "share * x + (1 - share) * y"),
    ),
    *_of(
        "models/field/near_network",
        "models/field/test_near_network",
        one_network_predicts_every_part=("weights[k : k + 1]", "weights[:1]"),
        clipped_together=("gradient.square().sum((1, 2))", "gradient.square().sum()[None]"),
    ),
    *_of(
        "models/field/near_summaries",
        "models/field/test_near_summaries",
        own_row_kept=("sums[k][at] -= terms[k]", "sums[k][at] -= 0 * terms[k]"),
        nearest_tiles_left_out=("total = total + self", "total = 0 * total + self"),
    ),
    *_of(
        "models/field/near_rows",
        "models/field/test_near_rows",
        "models/field/test_near_network",
        columns_of_the_first_stripe=("eye[stripe.start :, stripe]", "eye[: m - stripe.start, :16]"),
    ),
    *_of(
        "models/field/near_cache",
        "models/field/test_near_rows",
        "models/field/test_near_network",
        networks_of_other_counts=("self.asked[2:] if same else ()", "self.asked[2:]"),
    ),
    *_of(
        "models/fitting/loop",
        "models/fitting/test_training_loop::TestProgress",
        judged_by_other_rows=(
            "log_score(self.validation.y[own])",
            "log_score(self.validation.y[-own])",
        ),
    ),
    *_of(
        "models/process/matern",
        "models/process/test_matern",
        slope_of_another_power=("kv(nu - 1, x)", "kv(nu, x)"),
        change_one_sided=("(above - below) / (2 * CHANGE)", "(above - below) / CHANGE"),
    ),
    *_of(
        "models/field/covariance_start",
        "models/field/test_covariance_start",
        noisy_rows_change=("if best.noise == NOISE[0]:", "if best.noise != NOISE[0]:"),
        never_smooth=("self.span * smooth.sigmoid()", "0.4 + 0 * smooth.sigmoid()"),
    ),
    # Joint distributions
    *_of(
        "models/joint/law",
        "models/joint/test_joint_law",
        covariance_without_the_factor=(
            "return (phi @ self.L for phi in",
            "return (phi for phi in",
        ),
        paths_without_their_mean=(
            "w = self.m[:, None] + self.L",
            "w = 0 * self.m[:, None] + self.L",
        ),
    ),
    *_of(
        "models/joint/design",
        "models/joint/test_design::TestDense",
        probes_of_near_tiles=("% PROBE_SIDE for values", "% (PROBE_SIDE // 2) for values"),
        too_few_exact_gains=("(now > now[self.exact]", "(now > 1.2 * now[self.exact]"),
        chosen_tiles_stay_open=("self._open, gains, -np.inf", "self._open, gains, 0.0"),
        half_of_what_a_step_changes=("gain - 2 * self._measuring", "gain - self._measuring"),
        smallest_estimates_first=("np.argsort(-now[left], kind", "np.argsort(now[left], kind"),
    ),
    *_of(
        "models/joint/excursions",
        "models/joint/test_excursions",
        points_from_the_least_sure=("np.argsort(-self.score, kind", "np.argsort(self.score, kind"),
        draws_held_one_point_longer=('np.arange(n), side="right")', 'np.arange(n), side="left")'),
        surer_than_its_points=(
            "np.minimum(share, special.ndtr(ranked))",
            "np.maximum(share, special.ndtr(ranked))",
        ),
    ),
    *_of(
        "models/field/level_drift",
        "models/field/test_level_drift::test_the_drift_at_several_times_is_a_walk_with_a_slope",
        drift_that_forgets_the_earlier_time=(
            "walk = torch.minimum(size[:, None], size) * same",
            "walk = torch.diag(size) + 0 * same",
        ),
    ),
    *_of(
        "answers/change",
        "answers/test_change::test_the_change_of_an_area_has_the_closed_form",
        "answers/test_change::test_the_interval_contains_what_networks_changed",
        "answers/test_change::test_rates_are_those_of_the_step_up_procedure",
        "answers/test_change::test_scores_are_standard_normal_for_an_area_that_did_not_change",
        quarters_added=("sparse.vstack([-mean, mean]", "sparse.vstack([mean, mean]"),
        interval_without_the_networks=(
            "mean.T @ (after - before)",
            "0 * mean.T @ after",
        ),
        one_sided_direction=("2 * special.ndtr(-np.abs(z))", "special.ndtr(-np.abs(z))"),
        score_in_posterior_sds=("hypot(sd * np.sqrt(known + 1e-12), apart)", "hypot(sd, apart)"),
    ),
    *_of(
        "models/field/tile_sequence",
        "models/joint/test_joint_level",
        patch_of_independent_tiles=(
            "left[:, k:, k:] -= column",
            "left[:, k:, k:] -= 0 * column",
        ),
        roots_without_transpose=("(F.mT @ of_tiles)", "(F @ of_tiles)"),
        prior_subtracted_from_itself=(
            "low[chunk], out=low[chunk])",
            "0 * low[chunk], out=low[chunk])",
        ),
    ),
    *_of(
        "models/exact/exact_level",
        "models/exact/test_exact_process",
        patches_that_do_not_know_each_other=("C = torch.linalg", "C = 0 * torch.linalg"),
        shared_part_that_is_no_variance=("variance + shared.square()", "variance + 0 * shared"),
    ),
    *_of(
        "models/exact/covariance",
        "models/exact/test_covariance",
        noise_that_raises_correlations=("-nugget(theta) * total", "nugget(theta) * total"),
        ranges_that_are_not_nested=("(h / -q).exp_()", "(h / -1.0).exp_()"),
        time_without_its_own_part=("scale * v * in_time", "0 * scale * in_time"),
        sessions_without_a_lasting_part=("noise = w * most + fading", "noise = fading"),
    ),
    *_of(
        "models/exact/kriging",
        "models/exact/test_kriging",
        trend_that_is_certain=("weights += self.trend_error", "weights += 0 * self.trend_error"),
        half_of_the_pairs=("moved[k, before] += slope", "moved[k, before] += 0 * slope"),
        certain_variance=("max(self.freedom - 2, 1)", "max(self.freedom, 1)"),
        errors_that_are_not_known=(
            "trace = self.freedom - float(known @",
            "trace = self.freedom - 0 * float(known @",
        ),
    ),
    *_of(
        "models/exact/kriging",
        "models/exact/test_kriging",
        sessions_that_are_certain=("W.T @ W - A.T @ A", "W.T @ W"),
    ),
    *_of(
        "models/exact/passes",
        "models/exact/test_passes",
        passes_of_several_sessions=("key = own", "key = 0 * own"),
        rows_that_are_not_drawn_alike=(".permutation(len(rows))", ".permutation(MOST_PASSES)"),
    ),
    *_of(
        "models/exact/search",
        "models/exact/test_search",
        points_too_near=("math.sqrt(size + 1) * corners", "math.sqrt(size) * corners"),
        steps_against_the_gradient=("best.theta + 0.5**k * step", "best.theta - 0.5**k * step"),
    ),
    *_of(
        "models/exact/mixture",
        "models/exact/test_mixture",
        "models/exact/test_exact_process",
        points_that_agree=("(own - mean).square() + variance", "0 * own + variance"),
        errors_of_the_rows_themselves=("own[~own.any(1), -1] = True", "own[:, -1] = True"),
        knots_counted_twice=("total[some] -= low[at[some]]", "total[some] -= 0 * low[at[some]]"),
    ),
    *_of(
        "models/exact/exact_process",
        "estimators/test_field_exact",
        errors_in_another_unit=("/ passes.rows) / sd**2", "/ passes.rows) / sd"),
    ),
    *_of(
        "models/exact/stations",
        "models/exact/test_stations",
        fields_without_their_change=("(1 - keeps**2) * self._priors[0]", "0 * self._priors[0]"),
        rows_left_out_with_their_own=(
            "share = np.maximum(1 - field / noise",
            "share = np.maximum(1 - 0 * field",
        ),
        points_known_as_well_as_stations=("- kept.sum(1)", "- variance"),
        bridges_that_are_certain=("change * kept", "0 * kept"),
    ),
    *_of(
        "models/exact/limits",
        "models/exact/test_limits",
        variances_without_the_limit=("1 - a * ratio - ratio**2", "1 - 0 * ratio"),
        sites_that_know_the_row=("- mean / variance\n", "- 0 * mean / variance\n"),
    ),
    *_of(
        "models/fitting/limit_draws",
        "models/fitting/test_limit_draws",
        rows_that_know_themselves=("fit(rows.at(~half & ~held_out)", "fit(rows.at(~held_out)"),
        draws_on_both_sides=("np.where(data.side > 0, 1.0, share)", "np.ones(len(share))"),
    ),
    *_of(
        "distributions/amounts",
        "distributions/test_amounts",
        densities_without_the_slope=("- self.scores.log_slope(usual)", "- 0 * usual"),
        crps_without_the_zeros=("y * below**2 +", "0 * below +"),
        probabilities_of_an_end_left_out=("- self._below(lower)", "- self.cdf(lower)"),
    ),
    *_of(
        "models/field/home",
        "models/field/test_home",
        error_that_grows_from_the_start=("np.square(1 - self", "(1 - self"),
        mean_that_is_certain=("np.hstack([own, mean])", "np.hstack([own, 0 * mean])"),
        mean_of_equal_weights=(
            "K = covariance(self.places, self.range_km)",
            "K = np.eye(len(self.places))",
        ),
        covariates_of_the_mean=("mean[:, -c:] = own[:, -c:]", "mean[:, -c:] *= 1"),
        trend_without_an_end=(
            "np.clip((places - centre) / half, low, high)",
            "(places - centre) / half",
        ),
        error_with_another_variance=(
            "np.square(white).sum(1, keepdims=True)",
            "np.square(white).sum(1, keepdims=True).max()",
        ),
    ),
    *_of(
        "models/field/learned_home",
        "models/field/test_learned_home",
        trend_on_any_side=(
            "for axis, sign in product((0, 1), (1, -1))",
            "for axis, sign in [(0, 1)]",
        ),
        likelihood_without_the_determinant=(
            "free * np.log(variance) + logs",
            "free * np.log(variance)",
        ),
    ),
    *_of(
        "models/field/range_doubt",
        "models/field/test_range_doubt",
        ranges_without_a_prior=("weights.append(log_prior - logs", "weights.append(-logs"),
        mean_that_all_know=("+ np.square(1 - one @ near) / information", "+ 0 * information"),
        means_that_agree=("+ np.square(spread))", "+ 0 * spread)"),
        variance_without_the_field=(
            "float(tiles.variance()) + field.variance",
            "float(tiles.variance())",
        ),
    ),
    *_of(
        "models/field/left_out",
        "models/field/test_near_rows::TestLeftOut",
        own_row_among_the_others=("without=numbers if alone else None", "without=None"),
        distance_to_the_own_row=(
            "if nearest is None else nearest[numbers]",
            "if True else nearest[numbers]",
        ),
    ),
    *_of(
        "models/field/prediction_errors",
        "models/field/test_fitted_field::TestFade",
        laws_that_never_fade=("np.maximum(distance, self.reach_km)", "self.reach_km"),
    ),
    *_of(
        "models/field/predictive_law",
        "models/field/test_predictive_law",
        large_groups_count_as_all_their_rows=("self._group_rows / size)", "GROUP_ROWS + 0 * size)"),
        covariates_always_earned=(
            "weights=errors.weights) > LEAST_GAIN",
            "weights=errors.weights) > -1e9",
        ),
    ),
    *_of(
        "answers/tile_weights",
        "answers/test_area_weights",
        people_in_each_tile_of_a_polygon=(
            "values[place] * km2 / total[place]",
            "values[place] * km2",
        ),
    ),
    # Families
    *_of(
        "models/papers/scale_mixtures/processes",
        "models/papers/test_scale_mixture",
        half_the_degrees_of_freedom=("return StudentT(2 * self.a)", "return StudentT(self.a)"),
        distance_not_halved=("b + distance / 2)", "b + distance)"),
        evidence_without_the_determinant=(
            "constant - log_determinant / 2 - half",
            "constant - half",
        ),
    ),
    *_of(
        "models/papers/counts/cox",
        "models/papers/test_cox",
        offset_lost=("offset=self.y_mean + x[:, -1]", "offset=self.y_mean + 0 * x[:, -1]"),
    ),
    *_of(
        "models/papers/classes/processes",
        "models/papers/test_categorical",
        residual_lost=("moments.variance + self.diagonal(features)[:, None]", "moments.variance"),
        variance_without_its_scale=(
            "function_variance=scale * usual.function_variance",
            "function_variance=usual.function_variance",
        ),
        scale_squared=("(a / g).sqrt()", "(a / g)"),
    ),
    *_of(
        "models/papers/classes/softmax_layers",
        "models/papers/test_softmax_layers",
        ridge_lost=(", ridge=RIDGE)", ")"),
        sum_over_classes=(" / math.sqrt(len(means))", ""),
    ),
    *_of(
        "evaluation/class_tables",
        "evaluation/test_class_tables",
        shares_without_prior=("counts += every / every.sum()", "counts += 1 / classes"),
    ),
    *_of(
        "evaluation/class_scores",
        "evaluation/test_class_scores",
        observed_class_not_reached=("y[:, None] <= np.arange", "y[:, None] < np.arange"),
        errors_of_bins_cancel=("away * np.sign(np.bincount(number, away))[number]", "away"),
    ),
    *_of(
        "evaluation/threshold_reliability",
        "evaluation/test_class_tables",
        class_or_higher=("p[:, self.code :].sum(1)", "p[:, self.code + 1 :].sum(1)"),
    ),
    # Estimators
    *_of(
        "estimators/point_scale",
        "estimators/test_point_scale",
        degrees_of_the_equator=(
            "np.cos(np.deg2rad((south + north) / 2))",
            "np.cos(0 * (south + north))",
        ),
        longitude_not_turned=(
            "(np.asarray(longitude, np.float64) - middle + 180) % 360 - 180 + middle",
            "np.asarray(longitude, np.float64)",
        ),
    ),
    *_of(
        "estimators/point_times",
        "estimators/test_point_times",
        quarters_from_one=(
            "quarter.quarter - 1, np.float64) + share",
            "quarter.quarter, np.float64) + share",
        ),
        months_as_quarters=('"month": 1 / 3', '"month": 1.0'),
    ),
    # Maps
    *_of(
        "maps/frame",
        "maps/test_frame",
        half_a_pixel_east=(
            "np.arange(self.width, dtype=np.float64) + (self.column + 0.5)",
            "np.arange(self.width, dtype=np.float64) + self.column",
        ),
        rows_mirrored=(
            "down, across = tiles.row - self.row,",
            "down, across = self.row + self.height - 1 - tiles.row,",
        ),
        bounds_one_row_short=(
            "half - (self.row + self.height) * size",
            "half - (self.row + self.height - 1) * size",
        ),
    ),
    *_of(
        "maps/rasters",
        "maps/test_rasters",
        flags_of_a_single_tile=('"MODE" if "flag_values"', '"NEAREST" if "flag_values"'),
        nodata_counted=("valid = values[~missing]", "valid = values[missing | ~missing]"),
    ),
    *_of(
        "maps/page/packing",
        "maps/page/test_packing",
        absent_values_shifted=("(numbers.astype(np.float64) - none)", "numbers.astype(np.float64)"),
        rounded_down=("np.round((present - offset) / step)", "np.floor((present - offset) / step)"),
    ),
    *_of(
        "maps/page/page_quantiles",
        "maps/page/test_page_data",
        one_factor_for_both_sides=("np.where(below, *factors)", "factors[0]"),
        upper_ends_without_the_lower=("upper - lower)", "upper)"),
    ),
    *_of(
        "geodata/points/point_tests",
        "geodata/points/test_point_tests",
        sums_for_means=("self.value[rows]) / tests", "self.value[rows])"),
        tests_outside_the_region=(
            "wanted = inside if quarters is None",
            "wanted = inside | ~inside if quarters is None",
        ),
        local_tests_in_mobile_maps=("startswith(others)", "startswith(())"),
    ),
    *_of(
        "geodata/points/cell_times",
        "geodata/points/test_point_cells",
        local_times=("moment.astimezone(dt.UTC)", "moment"),
        month_first=('if order != "mdy"]', 'if order != "dmy"]'),
        afternoons_are_mornings=("(12 if at", "(0 if at"),
    ),
    *_of(
        "geodata/points/cell_numbers",
        "geodata/points/test_point_cells",
        silent_thousands=("if len(able) != 1:", "if not able:"),
        commas_are_decimal=(
            "certain[0] if certain else file_decimal",
            "certain[0] if certain else None",
        ),
    ),
    *_of(
        "geodata/points/roles",
        "geodata/points/test_point_cells",
        bytes_are_bits=("        letter = what\n", "        letter = what.lower()\n"),
    ),
    *_of(
        "geodata/points/cell_places",
        "geodata/points/test_point_cells",
        south_is_north=('sides & {"S", "W"}', 'sides & {"W"}'),
    ),
    *_of(
        "geodata/places/distances",
        "geodata/places/test_distances",
        arc_for_the_chord=("np.sin(min(km / EARTH_RADIUS_KM, np.pi) / 2)", "km / EARTH_RADIUS_KM"),
    ),
    # Runs and files
    *_of(
        "runs/run_folder",
        "runs/test_run_folder",
        stale_files_stay=("for name in stale:", "for name in stale[:0]:"),
        other_settings_go_unseen=("if different:", "if different and False:"),
    ),
    *_of(
        "runs/progress",
        "runs/test_progress",
        nothing_left_after_a_late_part=(
            "whole is not None and took < whole else None",
            "whole else 0",
        ),
    ),
    *_of(
        "maps/scales",
        "maps/test_qgis_styles",
        values_of_a_linear_scale=(
            "return np.asarray(low * (high / low) ** place - self.shift)",
            "return np.asarray(low + place * (high - low) - self.shift)",
        ),
    ),
    *_of(
        "models/numerics/precision",
        "models/numerics/test_precision",
        arrays_of_single_precision=(
            "return result.astype(np.float64)",
            "return result",
        ),
        in_place_change_of_a_copy=(
            'return name.endswith("_")',
            "return False",
        ),
    ),
    *_of(
        "answers/page_layers",
        "answers/test_page_layers",
        areas_one_row_too_low=("numbers = _raster(path) - 1", "numbers = _raster(path)"),
    ),
    *_of(
        "files",
        "test_files",
        half_a_file_in_place=(
            "beside.unlink(missing_ok=True)\n            raise",
            "raise",
        ),
    ),
]
