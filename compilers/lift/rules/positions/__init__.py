"""Windows over positions: convolutions and pools."""
