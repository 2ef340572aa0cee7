#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The reference of the API, by Doxygen, from the comments of the headers that are installed
# (cmake/PublicHeaders.cmake). A warning is an error.
#   docs/reference.sh FOLDER     then open FOLDER/html/index.html
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
folder=$(realpath -m "${1:?usage: docs/reference.sh FOLDER}")
rm -rf "$folder"/{headers,html}
mkdir -p "$folder/headers"
mapfile -t headers < <(cmake -DROOT=. -DPEAL_MPI=ON -DPEAL_CUDA=ON -P cmake/PublicHeaders.cmake)
python3 docs/site/doxygen_headers.py . "$folder/headers" "${headers[@]}"
cat >"$folder/headers/mainpage.dox" <<'PAGE'
/** \mainpage The reference of peal
What the installed headers say of themselves. A file's description is the header's essay: what it is, its invariant,
what it requires, thread safety. Names are in the namespaces of their folders: peal (tensors, autograd and ops),
peal::comm, peal::nn, peal::data and peal::launch. Shapes are in brackets, and an Error is a peal::Error. */
PAGE
{
  cat docs/site/Doxyfile
  printf '%s = %s\n' INPUT "$folder/headers" INCLUDE_PATH "$folder/headers" STRIP_FROM_PATH "$folder/headers" \
    STRIP_FROM_INC_PATH "$folder/headers" OUTPUT_DIRECTORY "$folder"
} >"$folder/Doxyfile"
doxygen "$folder/Doxyfile" >/dev/null
echo "the reference of ${#headers[@]} headers: $folder/html/index.html"
