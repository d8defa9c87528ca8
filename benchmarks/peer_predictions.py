"""Predictions of neural-tangents, written to tests/vectors/predictions.json.

sh benchmarks/peer_venv.sh FOLDER && FOLDER/bin/python benchmarks/peer_predictions.py
"""

import json
from pathlib import Path

import jax
import numpy as np

jax.config.update("jax_enable_x64", True)

import neural_tangents as nt  # noqa: E402
from neural_tangents import stax  # noqa: E402

TARGET = Path(__file__).parents[1] / "tests" / "vectors" / "predictions.json"
RNG = np.random.default_rng(7)
X, T = RNG.normal(size=(9, 3)), RNG.normal(size=(4, 3))
Y = np.stack([np.sin(X[:, 0]), X[:, 1] * X[:, 2]], 1)
W, B, V = 1.5, 0.3, 0.8  # σ², standard parametrisation "ntk" of neural-tangents takes σ


def layer(sigma_b):
    return stax.Dense(512, W_std=W**0.5, b_std=sigma_b)


_, _, kernel = stax.serial(
    layer(B**0.5), stax.Erf(), layer(B**0.5), stax.Erf(), stax.Dense(1, W_std=V**0.5, b_std=None)
)
CASES = []
for diag_reg in (0.0, 1e-2):
    ensemble = nt.predict.gradient_descent_mse_ensemble(kernel, X, Y, diag_reg=diag_reg)
    for t in (0.5, 30.0, None):
        for get in ("nngp", "ntk") if t is None else ("ntk",):
            found = ensemble(t=t, x_test=T, get=get, compute_cov=True)
            CASES.append({
                "diag_reg": diag_reg, "t": t, "get": get, "mean": np.asarray(found.mean).tolist(),
                "covariance": np.asarray(found.covariance).tolist(),
            })  # fmt: skip
k = kernel(X, None, "ntk")
rate = nt.predict.max_learning_rate(k, y_train_size=Y.size, eps=0.0)
out = {
    "case": "predictions",
    "description": "two hidden erf layers, W_std² = 1.5, b_std² = 0.3, readout 0.8 without bias, parametrisation of"
    " neural-tangents (unit variances); gradient_descent_mse_ensemble of neural-tangents "
    f"{nt.__version__} in float64; get nngp is its Gaussian process, get ntk its trained ensemble",
    "inputs": {"x": X.tolist(), "y": Y.tolist(), "test": T.tolist()},
    "max_learning_rate": float(rate), "cases": CASES, "tolerance": 1e-8,
}  # fmt: skip
TARGET.write_text(json.dumps(out, indent=1) + "\n")
