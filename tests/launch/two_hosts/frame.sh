#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# shellcheck disable=SC2034
# Two hosts of one machine, which the tests beside it source: network namespaces with a cable between them, host names, and a
# /dev/shm each. Skips (77) where it may not make them.
name=peal-$$
spaces=("$name-a" "$name-b") addresses=(10.78.0.1 10.78.0.2) holders=()
folder=$(mktemp -d)
skip() { echo "SKIPPED: $*"; exit 77; }
fail() {
  echo "FAILED: $*" >&2
  head -c 20000 "$folder"/[0-9] >&2
  exit 1
}
remove_hosts() {
  local space
  for space in "${spaces[@]}"; do
    ip netns pids "$space" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$space" 2>/dev/null || true
  done
  kill "${holders[@]}" 2>/dev/null || true
  rm -rf "$folder"
}
[[ $(id -u) == 0 ]] || skip 'network namespaces need root'
command -v ip >/dev/null || skip 'there is no ip (Debian: apt-get install iproute2)'
trap remove_hosts EXIT

ip netns add "${spaces[0]}" 2>"$folder/why" || skip "no network namespaces here: $(cat "$folder/why")"
ip netns add "${spaces[1]}"
ip -n "${spaces[0]}" link add cable type veth peer name cable netns "${spaces[1]}" 2>"$folder/why" ||
  skip "no virtual cables here: $(cat "$folder/why")"
for host in 0 1; do
  ip -n "${spaces[host]}" addr add "${addresses[host]}/24" dev cable
  ip -n "${spaces[host]}" link set cable up
  ip -n "${spaces[host]}" link set lo up
done
# One that both have, as a bridge of containers, comes last.
for host in 0 1; do
  ip -n "${spaces[host]}" link add bridge type dummy 2>/dev/null || continue
  ip -n "${spaces[host]}" addr add 10.79.0.1/24 dev bridge
  ip -n "${spaces[host]}" link set bridge up
done
unshare --mount --uts true 2>"$folder/why" || skip "no hosts of their own: $(cat "$folder/why")"
# Ranks of a host share its name and its memory: they enter a process that has both.
for host in 0 1; do
  unshare --mount --uts bash -c "hostname host-$host; mount -t tmpfs shm /dev/shm; echo ready; exec sleep 600" \
    >"$folder/holder-$host" &
  holders+=($!)
  printf '#!/bin/bash\nexec ip netns exec %s nsenter --target %s --mount --uts "$@"\n' "${spaces[host]}" "$!" \
    >"$folder/host-$host"
done
# What stands for ssh, by the host's address.
cat >"$folder/rsh" <<TEXT
#!/bin/bash
host=\$((\${1##*.} - 1))
shift
exec "$folder/host-\$host" bash -c "\$*"
TEXT
chmod +x "$folder"/host-? "$folder/rsh"
for host in 0 1; do
  for ((i = 0; i < 500; ++i)); do
    if grep -q ready "$folder/holder-$host"; then break; fi
    sleep 0.02
  done
  grep -q ready "$folder/holder-$host" || skip 'a host has no /dev/shm of its own'
done
export PEAL_LOG=warning OMP_NUM_THREADS=1

# on HOST COMMAND...: there
on() { "$folder/host-$1" "${@:2}"; }
# working: the ranks, of which the first writes into 0, have checked their first sums
working() {
  local i
  for ((i = 0; i < 1500; ++i)); do
    if grep -q 'sums of 4 ranks are right' "$folder/0"; then return; fi
    sleep 0.02
  done
  fail 'the ranks have not begun'
}
# names_the_other FILE...: of the ranks 0 to 3; what they say at the deadline, where one of a host says it for all there, tells
# of a rank of the other host
names_the_other() {
  local host told others=('(from|to) rank [23]|rank [23] to take' '(from|to) rank [01]|rank [01] to take')
  for host in 0 1; do
    told=$(grep -hE 'has not moved for 4 s \(PEAL_TIMEOUT\)' -A 3 "${@:1 + 2 * host:2}" || true)
    grep -Eq "${others[host]}" <<<"$told" ||
      fail "cut: on host $host nobody named a rank of the other: $(cat "${@:1 + 2 * host:2}")"
  done
}
# remaining HOST WORD...: its processes that have one of the words in their command
remaining() {
  local process
  for process in $(ip netns pids "${spaces[$1]}"); do tr '\0' ' ' <"/proc/$process/cmdline" 2>/dev/null && echo; done |
    grep -F "$(printf '%s\n' "${@:2}")"
}
# gone_by_the_deadline WORD...: on both hosts
gone_by_the_deadline() {
  local host i
  for host in 0 1; do
    for ((i = 0; i < 1500; ++i)); do
      [[ -n $(remaining "$host" "$@") ]] || break
      sleep 0.02
    done
    [[ -z $(remaining "$host" "$@") ]] || fail "on host $host there remains $(remaining "$host" "$@")"
  done
}
cut_cable() { ip -n "${spaces[0]}" link set cable down; }
mend_cable() { ip -n "${spaces[0]}" link set cable up; }
