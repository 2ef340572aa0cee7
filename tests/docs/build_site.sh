#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds what docs/ can be built to, where the tools are on this machine; installs nothing, and says what is left out.
#   build_site.sh ROOT
set -euo pipefail

root=$(realpath "${1:?usage: build_site.sh ROOT}")
export PYTHONDONTWRITEBYTECODE=1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if cmp -s "$root"/docs/site/requirements.txt "$root"/build/site/venv/requirements.txt; then  # nothing to install
  "$root/docs/site.sh" "$folder/site"  # the reference too, or says that it is left out
elif command -v doxygen >/dev/null; then
  echo 'LEFT OUT: THE SITE IS NOT BUILT: docs/site.sh has not been run here, which installs its mkdocs'
  "$root/docs/reference.sh" "$folder/reference"
else
  echo 'SKIPPED: NEITHER THE SITE NOR THE REFERENCE IS BUILT: there are neither mkdocs (docs/site.sh installs it) nor doxygen'
  exit 77
fi
