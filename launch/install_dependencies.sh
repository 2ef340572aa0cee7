#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Installs what peal is built with, where it is missing: Debian 12 packages, as root or with sudo.
#   launch/install_dependencies.sh [--dev]     --dev: what developers and CI use as well
# Does nothing, and needs neither root nor a network, when all is there.
set -euo pipefail

packages=(
  g++ cmake ninja-build
  libopenmpi-dev openmpi-bin
  libeigen3-dev libdnnl-dev zlib1g-dev libjpeg62-turbo-dev libpng-dev
  doctest-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  dataset-fashion-mnist
)
case ${1-} in
  '') ;;
  --dev) packages+=(clang-format curl python3-torch python3-torchvision clang libclang-rt-14-dev libsentencepiece-dev) ;;
  *)
    echo "usage: install_dependencies.sh [--dev]" >&2
    exit 2
    ;;
esac

fail() {
  printf 'install_dependencies: %s\n' "$@" >&2
  exit 1
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  fail "this is not Debian: there is no apt-get. peal needs, by their Debian names:" "  ${packages[*]}" \
    "Install these, then build with: cmake --preset release && cmake --build --preset release"
fi

missing=()
for package in "${packages[@]}"; do
  status=$(dpkg-query --show --showformat='${db:Status-Status}' "$package" 2>/dev/null || true)
  [[ $status == installed ]] || missing+=("$package")
done
if [[ ${#missing[@]} -eq 0 ]]; then
  echo "install_dependencies: all ${#packages[@]} packages are there"
  exit 0
fi
echo "install_dependencies: ${#missing[@]} of ${#packages[@]} packages are missing: ${missing[*]}"

as_root=()
if [[ $(id -u) -ne 0 ]]; then
  # Without a terminal sudo cannot ask for a password.
  if ! command -v sudo >/dev/null || { ! sudo -n true 2>/dev/null && [[ ! -t 0 ]]; }; then
    fail "installing needs root or sudo. Let an administrator run:" "  apt-get install ${missing[*]}"
  fi
  as_root=(sudo)
fi
# Another apt at work (a machine that just started, say) is waited for.
apt=(${as_root[@]+"${as_root[@]}"} env DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=300 -q)

echo "install_dependencies: apt-get update, then apt-get install"
"${apt[@]}" update </dev/null
"${apt[@]}" install --yes --no-install-recommends "${missing[@]}" </dev/null ||
  fail "apt-get could not install all of: ${missing[*]}" "Debian 12 (bookworm) has them; this is:" \
    "  $(sed -n 's/^PRETTY_NAME=//p' /etc/os-release 2>/dev/null || echo unknown)"
