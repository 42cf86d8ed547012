"""A grid becomes frozen runs, batches of runs become result rows."""
