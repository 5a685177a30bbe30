# Ordinary kriging by gstat, with the variogram that `fit.variogram` finds.
#
#     Rscript benchmarks/peers/gstat.R FOLDER...
#
# Each FOLDER has rows.csv (x, y, value) and new.csv (x, y), and gets law.csv: the mean and the
# variance of a new measurement at each row of new.csv. Prints the CPU seconds of fit and predictions
# of each, one a line.

suppressPackageStartupMessages({
  library(sp)
  library(gstat)
})

kriged <- function(rows, new) {
  width <- max(diff(range(rows$x)), diff(range(rows$y)))
  coordinates(rows) <- ~ x + y
  coordinates(new) <- ~ x + y
  # Models that do not converge warn; the one with the least weighted squares is taken.
  model <- suppressWarnings(
    fit.variogram(variogram(value ~ 1, rows), vgm(c("Exp", "Sph", "Mat")), fit.kappa = TRUE)
  )
  if (!all(is.finite(model$range)) || any(model$psill < 0) || tail(model$range, 1) <= 0) {
    message("gstat: no variogram converged; its range is set")
    model <- vgm(var(rows$value), "Exp", 0.2 * width, 0)
  }
  # As errors of measurement, the nugget is in the values at known places, too.
  nugget <- max(sum(model$psill[model$model == "Nug"]), 1e-6 * var(rows$value))
  model <- vgm(add.to = model[model$model != "Nug", ], psill = nugget, model = "Err", range = 0)
  found <- krige(value ~ 1, rows, new, model, debug.level = 0)
  data.frame(mean = found$var1.pred, variance = found$var1.var + nugget)
}

for (folder in commandArgs(trailingOnly = TRUE)) {
  rows <- read.csv(file.path(folder, "rows.csv"))
  new <- read.csv(file.path(folder, "new.csv"))
  started <- sum(proc.time()[1:2])
  law <- kriged(rows, new)
  cat(sum(proc.time()[1:2]) - started, "\n")
  stopifnot(all(is.finite(law$mean)), all(law$variance > 0))
  write.csv(law, file.path(folder, "law.csv"), row.names = FALSE)
}
