#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the site (docs/site.sh) and the reference (docs/reference.sh) are made of, by Python alone: every link has a page,
# the search finds words, and the comments say of the public functions what they have to. All checks are tried with faults
# first.
#   check_site.sh ROOT
set -euo pipefail

root=$(realpath "${1:?usage: check_site.sh ROOT}")
export PYTHONDONTWRITEBYTECODE=1
if ! command -v python3 >/dev/null; then
  echo 'SKIPPED: THE SITE AND THE COMMENTS OF THE PUBLIC HEADERS ARE NOT CHECKED: there is no python3'
  exit 77
fi
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# finds TEXT COMMAND...: that the command fails and says the text.
finds() {
  local text=$1
  shift
  if "$@" >"$folder/output" 2>&1 || ! grep -qF -- "$text" "$folder/output"; then
    printf 'FAILED: this fault was not found: %s\n' "$text" && cat "$folder/output"
    exit 1
  fi
}

faulty=$folder/faulty
mkdir -p "$faulty"/{docs,comm,cmake}
cp -r "$root/docs/site" "$faulty/docs"
printf '# Faulty\n\n[here](docs/page.md), `[code](nowhere.h)`, and [gone](comm/gone.h)\n' >"$faulty/README.md"
printf '# Page\n' >"$faulty/docs/page.md"
finds 'README.md: a link to comm/gone.h: no such file' python3 "$root/docs/site/stage.py" "$faulty" "$folder/staged"
grep -q '](page.md)' "$folder/staged/docs/index.md"

echo 'execute_process(COMMAND "${CMAKE_COMMAND}" -E echo comm/faulty.h)' >"$faulty/cmake/PublicHeaders.cmake"
cat >"$faulty/comm/faulty.h" <<'HEADER'
// SPDX-License-Identifier: Apache-2.0
// A header with faults.
#pragma once

namespace peal::comm {

// What is said, of both.
int said(int x);
int said(double x);

class Faulty {
 public:
  Faulty() = default;
  int silent() const { return 1; }  // its line says it

  int unsaid() const { return 2; }
  // It gives back a thing.
  Tensor shapeless() const;
  // An operation of its own.
  double unitless() const;
  // It is careful.
  void careless() { PEAL_CHECK(false, "no"); }

 private:
  int hidden() const;
};

}  // namespace peal::comm
HEADER
coverage=(python3 "$root/docs/site/coverage.py" "$faulty" --missing --at-least 100)
finds 'comm/faulty.h:16: Faulty::unsaid: no docstring' "${coverage[@]}"
finds 'comm/faulty.h:18: Faulty::shapeless: no shape' "${coverage[@]}"
finds 'comm/faulty.h:20: Faulty::unitless: no unit' "${coverage[@]}"
finds 'comm/faulty.h:22: Faulty::careless: no errors' "${coverage[@]}"
finds 'comm         docstring     6 of    7' "${coverage[@]}"

python3 "$root/docs/site/stage.py" "$root" "$folder/staged"
search=(python3 "$root/docs/site/check_search.py" "$folder/staged")
finds 'not found by the search: nowheresaid' "${search[@]}" bucket nowheresaid
sed -i.whole "s/separator: '\[/&_/" "$folder/staged/mkdocs.yml"  # cuts at each _
finds 'not found by the search: PEAL_TIMEOUT' "${search[@]}" FSDP PEAL_TIMEOUT
mv "$folder/staged/mkdocs.yml.whole" "$folder/staged/mkdocs.yml"
"${search[@]}" bucket FSDP PEAL_TIMEOUT
python3 "$root/docs/site/coverage.py" "$root" --missing --at-least 100
