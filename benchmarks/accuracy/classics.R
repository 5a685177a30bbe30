# Classic small spatial sets of R packages, as CSV files with the columns x, y and value.
#
#     apt install r-cran-sp r-cran-gstat r-cran-fields r-cran-spdata r-cran-mass r-cran-nlme
#     Rscript benchmarks/accuracy/classics.R FOLDER
#
# Degrees become kilometres on a plane. Rows without a value are left out; of several values at one
# place the mean remains.

folder <- commandArgs(trailingOnly = TRUE)[1]

loaded <- function(package, ...) {
  data(..., package = package, envir = globalenv())
}

written <- function(name, x, y, value) {
  rows <- aggregate(value ~ x + y, data.frame(x = x, y = y, value = value), mean)
  write.csv(rows, file.path(folder, paste0(name, ".csv")), row.names = FALSE)
}

degrees <- function(name, longitude, latitude, value) {
  written(name, 111.32 * cos(mean(latitude) * pi / 180) * longitude, 110.57 * latitude, value)
}

# sp (GPL)
loaded("sp", "meuse")
written("meuse-zinc", meuse$x, meuse$y, log(meuse$zinc))
written("meuse-copper", meuse$x, meuse$y, log(meuse$copper))

# gstat (GPL)
loaded("gstat", "jura", "coalash", "sic97", "oxford", "pcb")
jura <- rbind(jura.pred, jura.val)
written("jura-cobalt", jura$Xloc, jura$Yloc, jura$Co)
written("jura-nickel", jura$Xloc, jura$Yloc, jura$Ni)
written("coal-ash", coalash$x, coalash$y, coalash$coalash)
written("swiss-rain", sp::coordinates(sic_full)[, 1], sp::coordinates(sic_full)[, 2],
        sqrt(sic_full$rainfall))
written("oxford-ph", oxford$XCOORD, oxford$YCOORD, oxford$PH1)
written("pcb", pcb$x, pcb$y, log(pcb$PCB138))

# fields (GPL)
loaded("fields", "ozone2", "COmonthlyMet")
degrees("ozone", ozone2$lon.lat[, 1], ozone2$lon.lat[, 2], ozone2$y[16, ])
degrees("colorado-tmax", CO.loc[, 1], CO.loc[, 2], CO.tmax.MAM.climate)

# spData (CC0), MASS (GPL), nlme (GPL)
loaded("spData", "baltimore")
written("baltimore", baltimore$X, baltimore$Y, log(baltimore$PRICE))
loaded("MASS", "topo")
written("topo", topo$x, topo$y, topo$z)
loaded("nlme", "Wheat2")
written("wheat", Wheat2$longitude, Wheat2$latitude, Wheat2$yield)
