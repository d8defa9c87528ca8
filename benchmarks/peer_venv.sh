#!/bin/sh
# Builds the environment of the other side of benchmarks/peer.py: sh benchmarks/peer_venv.sh FOLDER [PYTHON3.11]
set -eu
folder=$1
"${2:-python3.11}" -m venv "$folder"
"$folder/bin/pip" install jax==0.4.23 jaxlib==0.4.23 "numpy<2" "scipy<1.13" frozendict absl-py \
    tensorflow-cpu==2.15.1 dm-tree
# both ask for tensorflow, which would come beside tensorflow-cpu
"$folder/bin/pip" install --no-deps tf2jax==0.3.6 neural-tangents==0.6.5
