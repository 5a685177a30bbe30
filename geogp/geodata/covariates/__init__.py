"""Reading of covariates, quantities from other sources that help to predict."""
