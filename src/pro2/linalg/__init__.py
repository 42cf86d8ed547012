"""Linear algebra on arrays; no files, progress bars or scikit-learn.

What `ProjectAndProbe().fit(X, y).adapt(Xt, yt)` computes, in the order in which it happens:

* `moments`: one pass over the source; `covariance`: its second moments and their inverse;
* `prior`: the source head, the ranked directions and the family of priors;
* `labelled`: the few labelled rows; `closed_form`: all members fitted to them, weighed and averaged.

The paper's probe on ranked features is `basis` (closed form or exact logistic; `adamw`: the paper's own procedure) and
`logistic`. Moments, bases and affine maps follow the library and device of their input; all else is NumPy.
"""
