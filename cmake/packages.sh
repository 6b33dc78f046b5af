# SPDX-License-Identifier: Apache-2.0
# Sourced by ./run and ./test: the system packages that a build needs, installed where any is missing.
tileops_packages=(cmake ninja-build g++ ccache python3 libyaml-cpp-dev libcli11-dev nlohmann-json3-dev
                  libfmt-dev libhwy-dev libxxhash-dev libgtest-dev libgmock-dev libbenchmark-dev)

tileops_install_packages() {
  command -v dpkg-query > /dev/null || return 0  # not Debian: CMake says what is missing
  local missing=() package
  for package in "${tileops_packages[@]}"; do
    dpkg-query -W -f '${Status}' "$package" 2> /dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ]; then
    echo "missing: apt-get install --no-install-recommends ${missing[*]} (as root)" >&2
    return 1
  fi
  echo "installing ${missing[*]}" >&2
  apt-get update -qq &&
    DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" > /dev/null
}
