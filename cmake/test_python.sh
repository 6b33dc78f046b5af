#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# cmake/test_python.sh [PYTEST ARGUMENTS]: the Python package on the library of build/dev, with torch and
# transformers; then the wheel, installed in an environment without torch. cmake/make_venv.sh makes the environments;
# TILEOPS_PYTHON is the interpreter (default python3), TILEOPS_VENV another environment that has everything.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${TILEOPS_VENV:-build/venv/test}
python=${TILEOPS_PYTHON:-python3}
. cmake/packages.sh
if ! "$python" -c 'import ensurepip, os, sysconfig
assert os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h"))' 2> /dev/null; then
  tileops_packages=(python3-venv python3-dev)
  tileops_install_packages
fi
cmake/make_venv.sh plain
[ -n "${TILEOPS_VENV:-}" ] || cmake/make_venv.sh test
cmake/build.sh dev tileops
cmake -S python -B build/python -G Ninja -Dtileops_DIR="$PWD/build/dev" -DPython_EXECUTABLE="$(realpath -s "$venv/bin/python")" \
  -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_FLAGS_DEBUG="-O1 -g1" > build/python.log
cmake --build build/python >> build/python.log || { cat build/python.log >&2; exit 1; }
PYTHONPATH=python "$venv/bin/python" -m pytest -q -p no:cacheprovider -n "$(nproc)" python/tests "$@"

rm -rf build/wheel
"$venv/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel \
  -C build-dir=../build/python-wheel ./python
build/venv/plain/bin/pip install -q --disable-pip-version-check --force-reinstall --no-deps build/wheel/*.whl
(cd build/venv/plain && ./bin/python ../../../python/tests/smoke.py)
