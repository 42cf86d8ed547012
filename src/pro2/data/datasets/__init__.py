"""One file per data set: official layout, licence, columns, source rows and named targets."""
