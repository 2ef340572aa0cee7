#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What the tests of peal share, beside those of peal-run; each sources it.
# shellcheck source=tests/launch/peal_run/frame.sh
source "$(dirname "${BASH_SOURCE[0]}")/../peal_run/frame.sh" "$@"
export XDG_CONFIG_HOME="$folder/home"
unset PEAL_CONFIG PEAL_DEVICE PEAL_PRECISION PEAL_LOG
# prints TEXT: on stdout.
prints() { grep -qF -e "$1" out || failed "it does not print: $1"; }
