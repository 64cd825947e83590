#!/usr/bin/env bash
# install_packages.sh PYTHON
# Installs the Debian packages that the build needs and that are missing, if run by root on
# a machine with apt; else names them and fails.
set -euo pipefail

python=$1
here=$(dirname "$0")
missing=()

need_command() { command -v "$1" > /dev/null || missing+=("$2"); }
need_file() {
  local package=$1 path
  shift
  for path in "$@"; do
    [ -e "$path" ] && return
  done
  missing+=("$package")
}

need_command cmake cmake
need_command ninja ninja-build
need_command g++ g++
need_command ccache ccache
need_command flatc flatbuffers-compiler
need_command clang-format clang-format
need_command chromium chromium
need_command chromedriver chromium-driver
need_file libflatbuffers-dev /usr/include/flatbuffers/flatbuffers.h \
  /usr/local/include/flatbuffers/flatbuffers.h
need_file libgtest-dev /usr/include/gtest/gtest.h /usr/local/include/gtest/gtest.h
if ! command -v "$python" > /dev/null; then
  missing+=(python3 python3-venv python3-dev)
else
  "$python" -c 'import ensurepip, venv' 2> /dev/null || missing+=(python3-venv)
  "$python" -c 'import os, sysconfig
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))' \
    || missing+=(python3-dev)
fi

"$here/apt_install.sh" setup "the build" "${missing[@]}"
