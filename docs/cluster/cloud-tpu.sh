#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Meshmark on a Cloud TPU slice of one or many hosts, started from your own machine with gcloud:
#
#   docs/cluster/cloud-tpu.sh NAME ZONE                                     # the standard profile
#   docs/cluster/cloud-tpu.sh NAME ZONE --level L4 -x                       # pytest's options and the suite's
#
# The TPU VM must exist already (gcloud compute tpus tpu-vm create ...). JAX finds the hosts from the TPU's metadata.
# This script was not run: no Cloud TPU was at hand. `bash -n` reads it, and the flags are those of gcloud's
# documentation (gcloud compute tpus tpu-vm ssh, scp).
#
# MESHMARK_SOURCE   where each host gets the suite from (default: the `origin` of this checkout)
# MESHMARK_COMMIT   the commit (default: this checkout's): all hosts must have the same one
# MESHMARK_JAX      what is installed as JAX (default: jax[tpu])
# PROJECT           the project, if it is not gcloud's own

set -euo pipefail
cd "$(dirname "$0")/../.."
if (($# < 2)); then
    echo "usage: docs/cluster/cloud-tpu.sh NAME ZONE [options of pytest conformance ...]" >&2
    exit 2
fi
name=$1
where=(--zone "$2")
shift 2
if [[ -n ${PROJECT:-} ]]; then where+=(--project "$PROJECT"); fi
source=${MESHMARK_SOURCE:-$(git remote get-url origin 2>/dev/null || true)}
if [[ -z $source ]]; then
    echo "this checkout has no remote named origin: set MESHMARK_SOURCE to what the hosts can clone" >&2
    exit 2
fi
commit=${MESHMARK_COMMIT:-$(git rev-parse HEAD)}
jax=${MESHMARK_JAX:-jax[tpu]}

everywhere() { # one command on all hosts at once; it ends with an error when one of them does
    gcloud compute tpus tpu-vm ssh "$name" "${where[@]}" --worker=all --command="$1"
}

# uv brings a Python of its own: that of some TPU images (3.10) is too old for this JAX.
everywhere "set -e
rm -rf meshmark && git clone --quiet $(printf %q "$source") meshmark && cd meshmark
git checkout --quiet $(printf %q "$commit")
python3 -m pip install --quiet --user uv
python3 -m uv venv --quiet --python 3.12
python3 -m uv pip install --quiet $(printf %q "$jax") pytest pytest-xdist"

arguments=$(printf ' %q' "$@")
code=0
everywhere "cd meshmark && .venv/bin/python -m pytest conformance --distributed --record records.jsonl$arguments" || code=$?

# Rank 0 holds the merged record, and is worker 0 of a single slice.
gcloud compute tpus tpu-vm scp "$name:meshmark/records.jsonl" "$name.jsonl" "${where[@]}" --worker=0
echo "records: $name.jsonl"
exit "$code"
