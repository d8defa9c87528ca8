"""Infinitely wide networks beside an RBF support vector machine and ridge regression, on eight small data sets.

    python benchmarks/datasets.py [--case iris] [--most 1000] [--quick] [--json]

The data ship in scikit-learn and in mlxtend (the extra `examples`). All methods see the same five folds, inputs
standardised by the training part, and choose their numbers by three folds inside it. A score is accuracy, or R² for
regression; rows are means and standard deviations over the folds. Of a larger set the first `--most` samples of a
permutation are taken.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn import datasets
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.model_selection import GridSearchCV, KFold, StratifiedKFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

import netsor as ns
from netsor.sklearn import NNGPClassifier, NNGPRegressor, NTKClassifier, NTKRegressor

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    load: Callable[[], tuple[Array, Array]]
    classes: bool


def bundled(name: str) -> Callable[[], tuple[Array, Array]]:
    return lambda: getattr(datasets, f"load_{name}")(return_X_y=True)


def extra(name: str) -> Callable[[], tuple[Array, Array]]:
    def load() -> tuple[Array, Array]:
        try:
            from mlxtend import data
        except ImportError:
            raise SystemExit(f'{name} ships in mlxtend: pip install "netsor[examples]"') from None
        x, y = getattr(data, name)()
        return x, y

    return load


CASES = {
    "iris": Case(bundled("iris"), True),
    "wine": Case(bundled("wine"), True),
    "breast cancer": Case(bundled("breast_cancer"), True),
    "digits": Case(bundled("digits"), True),
    "MNIST (5000)": Case(extra("mnist_data"), True),
    "diabetes": Case(bundled("diabetes"), False),
    "linnerud": Case(bundled("linnerud"), False),
    "auto mpg": Case(extra("autompg_data"), False),
}
DEPTHS, REGULARISATIONS = (1, 3), (1e-4, 1e-2, 1e-1, 1.0)


def methods(classes: bool, outputs: int) -> dict[str, tuple[Any, dict[str, Any]]]:
    """Estimators and the numbers that each chooses among."""
    programs = [ns.programs.mlp(depth=d, var_w=2, var_b=0.1) for d in DEPTHS]
    wide = {"program": programs, "diag_reg": REGULARISATIONS}
    svm: Any = SVC() if classes else SVR()
    grid = {"C": [0.1, 1, 10, 100], "gamma": ["scale", 0.01, 0.1, 1.0]}
    if not classes and outputs > 1:
        svm, grid = MultiOutputRegressor(svm), {f"estimator__{k}": v for k, v in grid.items()}
    return {
        "NTK": (NTKClassifier() if classes else NTKRegressor(), wide),
        "NNGP": (NNGPClassifier() if classes else NNGPRegressor(), wide),
        "RBF SVM": (svm, grid),
        "ridge": (RidgeClassifier() if classes else Ridge(), {"alpha": [1e-2, 1e-1, 1, 10, 100, 1000]}),
    }


def scores(name: str, case: Case, most: int, quick: bool) -> list[dict[str, Any]]:
    """A row for each method."""
    x, y = case.load()
    x = x[:, ~np.isnan(np.asarray(x, dtype=float)).any(0)]  # the names of the cars are no numbers
    chosen = np.random.default_rng(0).permutation(len(x))[:most]
    x, y = np.asarray(x[chosen], dtype=float), np.asarray(y[chosen])
    if not case.classes:
        y = (y - y.mean(0)) / y.std(0)
    split: Any = StratifiedKFold if case.classes else KFold
    inner, outer = (split(k, shuffle=True, random_state=0) for k in ((2, 2) if quick else (3, 5)))
    rows = []
    for method, (estimator, grid) in methods(case.classes, 1 if y.ndim == 1 else y.shape[1]).items():
        start = time.process_time()
        options = {k: list(v)[-1:] if quick else list(v) for k, v in grid.items()}
        model = make_pipeline(StandardScaler(), GridSearchCV(estimator, options, cv=inner))
        found = cross_val_score(model, x, y, cv=outer)
        rows.append({
            "data": name, "samples": len(x), "features": x.shape[1], "method": method, "mean": float(found.mean()),
            "sd": float(found.std()), "seconds": round(time.process_time() - start, 1),
        })  # fmt: skip
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--case", choices=CASES, action="append")
    parser.add_argument("--most", type=int, default=1000, help="samples of a data set")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    for name in args.case or CASES:
        for row in scores(name, CASES[name], 60 if args.quick else args.most, args.quick):
            if args.json:
                print(json.dumps(row), flush=True)
            else:
                shown = f"{row['mean']:.3f} ± {row['sd']:.3f}"
                print(f"{row['data']:15}{row['samples']:6}{row['features']:5}  {row['method']:8} {shown}", flush=True)


if __name__ == "__main__":
    main()
