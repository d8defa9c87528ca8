"""Predictions of infinitely wide networks: Gaussian-process posteriors and gradient descent on the NTK."""

from netsor.compilers.predict.predictor import Prediction, Predictor, predict

__all__ = ["Prediction", "Predictor", "predict"]
