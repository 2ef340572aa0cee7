#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The environment variables that peal reads are those of docs/running.md's table, no more and no fewer; and those that
# its tests read are named in docs/HACKING.md.
#   check_variables.sh ROOT
set -euo pipefail
shopt -s inherit_errexit

cd "${1:?usage: check_variables.sh ROOT}"

# Names that C++ reads in these folders, PEAL_... alone; and, of scripts, those that fall back: ${PEAL_X-...}.
read_in() {
  {
    grep -rhoE --include='*.cpp' --include='*.h' --include='*.cu' '(getenv|environment)\("PEAL_[A-Z_]+"' "$@" || true
    grep -rhoE --include='*.sh' --include='peal-mpirun' '\$\{PEAL_[A-Z_]+[-:}]' "$@" || true
  } | grep -oE 'PEAL_[A-Z_]+' | sort -u
}

failures=0
# same WHAT EXPECTED DOCUMENTED
same() {
  diff <(echo "$2") <(echo "$3") && return
  echo "$1: < is read by the code, > is documented"
  failures=$((failures + 1))
}

table=$(sed -nE 's/^\| `(PEAL_[A-Z_]+)` \|.*/\1/p' docs/running.md | sort -u)
code=$(read_in autograd comm nn data launch examples bench)
[[ -n $code ]] || { echo "no variable is found in the code"; exit 1; }
same "docs/running.md's table of environment variables" "$code" "$table"

named=$(grep -oE '`PEAL_TEST_[A-Z_]+`' docs/HACKING.md | tr -d '`' | sort -u || true)
same "docs/HACKING.md's variables of the tests" "$(read_in tests | grep '^PEAL_TEST_' || true)" "$named"

echo "$(wc -w <<<"$code") variables, $failures differences"
[[ $failures -eq 0 ]]
