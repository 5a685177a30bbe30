"""How models are fitted: loop, steps, schedules, checkpoints, several processes."""
