"""Pure mathematics on any Array-API array: namespace, device and dtype follow the input.

What `ProjectAndProbe().fit(X, y).adapt(Xt, yt)` computes, in the order in which it happens:

* project: `moments` (one pass over the source), `bases` (ranked directions in closed form; `adamw`: the paper's way);
* priors: `family` (the constants), `covariances` and `discriminants` (their parts), `priors` (those of a source);
* probe: `labels` (the handful), `losses`, `rows` (coordinates), `mode` (the one Newton), `loo` (leaving a row out),
  `average` (all priors, weighed and mixed into one head).

Beside it: `problem` and `probes` are the paper's probe, by the same solver; `graph` is for unlabelled rows, and
`label_priors` for many labels at once. `lapack`, `kernels` and `compiled`, which hands work to them, make some of it
faster and nothing of it different.
"""
