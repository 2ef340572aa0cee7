#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# peal-mpirun against a stand-in for mpirun, which says how it was called. Argument 1: the path of peal-mpirun.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
mkdir "$folder/in a path" "$folder/mpich"
cp "$1" "$folder/in a path/peal-mpirun"
peal_mpirun="$folder/in a path/peal-mpirun"
stand_in() {  # stand_in FOLDER VERSION
  cat >"$1/mpirun" <<TEXT
#!/bin/sh
[ "\$1" = --version ] && { echo '$2'; exit 0; }
for argument; do printf '<%s>' "\$argument"; done
exit 7
TEXT
  chmod +x "$1/mpirun"
}
stand_in "$folder" 'mpirun (Open MPI) 4.1.4'
stand_in "$folder/mpich" 'HYDRA build details'
unset SLURM_JOB_NUM_NODES PBS_NODEFILE LSB_HOSTS PE_HOSTFILE

failures=0
# expect WHAT STATUS TEXT arguments...: peal-mpirun exits with STATUS and prints TEXT; text !TEXT: and does not.
expect() {
  local what=$1 status=$2 text=$3 output rc=0
  shift 3
  output=$(PATH="${bin-$folder}:$PATH" ${before-} "$peal_mpirun" "$@" 2>&1) || rc=$?
  if [[ $rc -ne $status ]]; then
    echo "FAILED: $what: exit status $rc, expected $status: $output"
  elif [[ $text == !* && $output == *"${text#!}"* ]] || [[ $text != !* && $output != *"$text"* ]]; then
    echo "FAILED: $what: expected '$text' in: $output"
  else
    echo "passed: $what"
    return
  fi
  failures=$((failures + 1))
}

whole=$(awk '$1 == "Cpus_allowed_list:" {print $2}' /proc/self/status)
machine=$(awk '$1 == "Cpus_allowed_list:" {print $2}' /proc/1/status)

expect 'help' 0 'usage: peal-mpirun' --help
expect 'no program' 2 'which program?' -n 2
expect 'no arguments' 2 'usage: peal-mpirun'
expect 'a bad number of ranks' 2 "-n expects a number of ranks, got 'two'" -n two prog
expect 'an option without its values' 2 '--mca expects 2 value(s)' --mca a
expect 'the exit status is forwarded' 7 '<-n><1><prog>' -n 1 prog
expect 'arguments stay whole' 7 '<-n><1><my prog><a  b><><-n><9>' -n 1 'my prog' 'a  b' '' -n 9
expect 'unknown options pass' 7 '<-x><A=b><--mca><btl><self,vader><--verbose><-np><1><prog>' \
  -x A=b --mca btl self,vader --verbose -np 1 prog
expect 'oversubscription is allowed' 7 '<--oversubscribe>' -n 100000 prog
expect 'more ranks than cores are not bound' 7 '<--bind-to><none>' -n 100000 prog
if [[ $whole == "$machine" ]]; then
  expect 'one rank gets an even share' 7 '<--map-by><slot:PE=' -n 1 prog
  expect 'even shares are bound' 7 '<--bind-to><core>' -n 1 prog
fi
expect 'the own placing is kept' 7 '!<--bind-to><core>' -n 1 --bind-to socket prog
expect 'the own placing is kept' 7 '!<--map-by>' -n 1 --bind-to socket prog
expect 'no oversubscription when refused' 7 '!<--oversubscribe>' -n 1 --nooversubscribe prog
expect 'several hosts are not bound' 7 '<--bind-to><none>' -n 1 --host a,b prog
expect 'a host that is gone is found' 7 '<oob_tcp_keepalive_time><5>' -n 1 --host a,b prog
expect 'the own way to find it is kept' 7 '!<oob_tcp_keepalive_time><5>' -n 1 --host a,b --mca oob_tcp_keepalive_time 9 prog
expect 'this host is not looked after' 7 '!oob_tcp_keepalive' -n 1 prog
SLURM_JOB_NUM_NODES=2 expect 'a Slurm node that is gone is found' 7 '<oob_tcp_keepalive_time><5>' -n 1 prog
expect 'a host that a file has is found' 7 '<oob_tcp_keepalive_time><5>' -n 1 --mca orte_default_hostfile hosts prog
OMPI_MCA_orte_default_hostfile=hosts expect 'and in a variable' 7 '<oob_tcp_keepalive_time><5>' -n 1 prog
expect 'without this host there are others' 7 '<oob_tcp_keepalive_time><5>' -n 1 --nolocal prog
mkdir -p "$folder/installed/bin" "$folder/installed/etc"
cp "$folder/mpirun" "$folder/installed/bin"
printf '# hosts\n\n' >"$folder/installed/etc/openmpi-default-hostfile"
bin=$folder/installed/bin expect 'a default file without hosts is none' 7 '!oob_tcp_keepalive' -n 1 prog
echo 'other slots=2' >>"$folder/installed/etc/openmpi-default-hostfile"
bin=$folder/installed/bin expect 'a default file has hosts' 7 '<oob_tcp_keepalive_time><5>' -n 1 prog
mkdir "$folder/without ssh"
for tool in bash env awk cat id seq sort wc; do ln -s "$(command -v "$tool")" "$folder/without ssh"; done
cp "$folder/mpirun" "$folder/without ssh"
without_ssh() { PATH="$folder/without ssh" "$@"; }
before=without_ssh expect 'one host needs no ssh' 7 '<--mca><plm_rsh_agent><false>' -n 1 prog
before=without_ssh expect 'several hosts do' 7 '!plm_rsh_agent' -n 1 --host a,b prog
before=without_ssh expect 'the own way to other hosts is kept' 7 '!<false>' -n 1 --mca plm_rsh_agent myssh prog
expect 'several programs are not bound' 7 '<--bind-to><none>' -n 1 prog : -n 1 other
SLURM_JOB_NUM_NODES=2 expect 'several Slurm nodes are not bound' 7 '<--bind-to><none>' -n 1 prog
if [[ $machine == *[,-]* ]]; then
  before="taskset -c ${whole%%[,-]*}" expect 'a subset of the cores is not bound' 7 '<--bind-to><none>' -n 1 prog
fi
if [[ $(id -u) -eq 0 ]]; then
  expect 'root is allowed' 7 '<--allow-run-as-root>' -n 1 prog
else
  expect 'no root, no flag' 7 '!<--allow-run-as-root>' -n 1 prog
fi
bin=$folder/mpich expect 'another mpirun gets nothing added' 7 '!<--oversubscribe>' -n 1 prog
expect 'show runs nothing' 0 'prog a\ b' --show -n 1 prog 'a b'

# One that stays is ended where it has no process, after a second here, and not where it has one.
sed -i 's/patience=60/patience=1/; s/read -rt 5/read -rt 1/' "$peal_mpirun"
stays() { # stays COMMAND: mpirun is this
  # shellcheck disable=SC2016
  printf '#!/bin/sh\n[ "$1" = --version ] && { echo "mpirun (Open MPI) 4.1.4"; exit 0; }\n%s\n' "$1" >"$folder/mpirun"
}
stays 'exec sleep 100'
expect 'mpirun that stays without ranks is ended' 143 'mpirun has had no ranks for 1 s, and stays: it is ended' -n 1 prog
stays 'trap "" TERM; exec sleep 100'
expect 'and killed where it does not hear' 137 'it is ended' -n 1 prog
stays 'sleep 2.5 & wait; exit 7'
expect 'mpirun whose ranks take their time is not' 7 '!ended' -n 1 prog
stays 'exec sleep 2.5'
expect 'nor one whose ranks may be elsewhere' 0 '!ended' -n 1 --rankfile file prog
expect 'and by several programs in a file' 0 '!ended' -n 1 --app file prog

rm "$folder/mpirun"
for tool in bash env id awk cat seq sort wc; do ln -s "$(command -v "$tool")" "$folder/$tool"; done
rc=0
output=$(PATH="$folder" "$peal_mpirun" -n 1 prog 2>&1) || rc=$?
if [[ $rc -ne 2 || $output != *'mpirun is not on PATH'*openmpi-bin* ]]; then
  echo "FAILED: without mpirun: $rc: $output"
  failures=$((failures + 1))
fi

echo "$failures failures"
[[ $failures -eq 0 ]]
