#!/usr/bin/env bash
# install_python.sh PYTHON VENV
# Makes the virtual environment, installs everything that development needs, and edgewise
# itself in editable form: `import edgewise` finds src/. The native module is built by CMake.
set -euo pipefail

python=$1
venv=$2
here=$(dirname "$0")
quiet() { "$here/quiet.sh" "$@"; }

if ! "$python" -c 'import sys; raise SystemExit(sys.version_info < (3, 10))'; then
  echo "[setup] edgewise needs Python 3.10 or later; got $("$python" --version 2>&1);" \
    "try make PYTHON=/path/to/python3" >&2
  exit 1
fi
[ -x "$venv/bin/python" ] \
  || quiet build/logs/venv.log "virtual environment" "$python" -m venv "$venv"

pip=("$venv/bin/python" -m pip install --disable-pip-version-check)
# By its exact version and before all else: where a CPU build of it lies on disk, pip takes
# that one only for an exact pin, and a range would fetch gigabytes for GPUs.
quiet build/logs/pip-torch.log "pip install torch" "${pip[@]}" torch==2.13.0
quiet build/logs/pip-build.log "pip install build tools" "${pip[@]}" \
  "scikit-build-core>=1.1,<2" "nanobind>=3.1,<4"
quiet build/logs/pip-edgewise.log "pip install edgewise and its extras" "${pip[@]}" \
  --no-build-isolation -C wheel.cmake=false -C editable.mode=inplace \
  -e ".[cli,docs,export,ethosu,llm,model-explorer,models,neutron,peer,ray,scale,serve,sound,dev]"
