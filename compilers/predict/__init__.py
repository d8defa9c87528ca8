"""Predictions of infinitely wide networks: Gaussian-process posteriors and gradient descent on the NTK."""

from netsor.compilers.predict.predictor import Landmarks, Prediction, Predictor, Solver, predict

__all__ = ["Landmarks", "Prediction", "Predictor", "Solver", "predict"]
