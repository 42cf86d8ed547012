"""scikit-learn skins over `pro2.linalg`: ours and the baselines, one contract."""
