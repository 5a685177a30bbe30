"""Numbers on any device: factorisations, products, threads, devices and precision."""
