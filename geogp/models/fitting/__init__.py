"""How models are trained: steps, loops, optimisers and checkpoints."""
