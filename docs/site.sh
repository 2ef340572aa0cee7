#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds these documents as a site, search included, that is read from a folder, without a server or a network:
#   docs/site.sh FOLDER       then open FOLDER/index.html
# mkdocs-material comes from PyPI, in the versions of docs/site/requirements.txt, into a venv of its own
# (build/site/venv). Links that lead nowhere, and warnings, end it. With a build of peal in build/release the pages of
# `peal-schedule view` are on it, and with doxygen installed the reference of the API; it says what is left out.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
site=$(realpath -m "${1:?usage: docs/site.sh FOLDER}")
if [[ -e $site && ! -e $site/search/search_index.json && -n $(ls -A "$site") ]]; then
  echo "site.sh: $site is there and is no site: give a folder that is not there, or one that this has written" >&2
  exit 1
fi
venv=$root/build/site/venv  # it alone stays; the rest is made in a folder that goes
wanted=$root/docs/site/requirements.txt
if ! cmp -s "$wanted" "$venv/requirements.txt"; then
  rm -rf "$venv"
  mkdir -p "${venv%/*}"
  python3 -m venv "$venv" || {
    echo "site.sh: python3 makes no venv here (Debian: apt-get install python3-venv)" >&2
    exit 1
  }
  "$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$wanted"
  cp "$wanted" "$venv/requirements.txt"
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

given=()
schedule=$root/build/release/launch/tools/schedule/peal-schedule
if [[ -x $schedule ]]; then
  mkdir "$work/views"
  "$schedule" view all_reduce ring --ranks 5 --output "$work/views/ring.html" >/dev/null
  "$schedule" view pipeline --kind gpipe --beside 1f1b --output "$work/views/pipeline.html" >/dev/null
  "$schedule" view compare --output "$work/views/compare.html" >/dev/null
  given+=(--views "$work/views")
else
  echo "site.sh: LEFT OUT the pages of peal-schedule view: there is no build in build/release" >&2
fi
if command -v doxygen >/dev/null; then
  "$root/docs/reference.sh" "$work/reference"
  given+=(--reference "$work/reference/html")
else
  echo "site.sh: LEFT OUT the reference of the API: doxygen is not installed (apt-get install doxygen)" >&2
fi

"$venv/bin/python" "$root/docs/site/stage.py" "$root" "$work" "${given[@]}"
NO_MKDOCS_2_WARNING=1 "$venv/bin/mkdocs" --quiet build --strict --clean -f "$work/mkdocs.yml" -d "$site"
"$venv/bin/python" "$root/docs/site/check_search.py" "$site" bucket FSDP PEAL_TIMEOUT
echo "$site/index.html is the site's first page"
