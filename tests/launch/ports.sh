#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Ports of this machine, for tests that source it.

# listened_at PORT: somebody listens there
listened_at() { grep -qiE ":$(printf %04X "$1") 0+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
# free_port: one where nobody listens, below those that the system gives to who asks for any
free_port() {
  local port
  until port=$((20000 + RANDOM % 12000)) && ! listened_at "$port"; do :; done
  echo "$port"
}
