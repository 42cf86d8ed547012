"""For papers, not for products: baselines, the paper's data sets, experiments, reports and theory."""
