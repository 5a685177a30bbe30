"""How models are fitted: loop, steps, schedules, checkpoints, processes of a team."""
