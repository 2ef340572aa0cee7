#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# What peal-schedule says and writes, and how it refuses. Arguments: the program, the command to test.
set -euo pipefail
shopt -s inherit_errexit

program=${1:?usage: peal_schedule_test.sh PROGRAM COMMAND}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

says() { # says TEXT ARGUMENTS...: the output has TEXT, and the status is 0
  local text=$1 output
  shift
  output=$("$program" "$@") || { echo "failed: $*"; printf '%s\n' "$output"; exit 1; }
  grep -qF -- "$text" <<<"$output" || { echo "expected '$text' from: $*"; printf '%s\n' "$output"; exit 1; }
}

refuses() { # refuses TEXT ARGUMENTS...: the error has TEXT, and the status is not 0
  local text=$1 output
  shift
  if output=$("$program" "$@" 2>&1); then echo "not refused: $*"; exit 1; fi
  grep -qF -- "$text" <<<"$output" || { echo "expected '$text' from: $*"; printf '%s\n' "$output"; exit 1; }
}

holds() { # holds FILE TEXT...: the file has each text
  local file=$1 text
  shift
  for text in "$@"; do
    grep -qF -- "$text" "$file" || { echo "expected '$text' in $file"; exit 1; }
  done
}

case ${2:?} in
  list)
    says 'all_reduce      circulant            any              6    1.750    0.875' list
    says 'all_gather      recursive_doubling   powers of 2      3    0.875    0.000' list
    refuses 'A subcommand is required'
    ;;
  show)
    says '1      0>1 4+<4   1>2 0+<0   2>3 1+<1   3>4 2+<2   4>0 3+<3' all_reduce ring --ranks 5
    says 'in place: right' all_reduce ring --ranks 5 --verify --cost --draw out.svg --trace out.json --timeline time.svg
    holds out.svg 'all_reduce by ring, 5 ranks, 10 elements' '</svg>'
    holds time.svg 'rank 4' '</svg>'
    holds out.json '"traceEvents"' '"name":"rank 4"'
    if command -v python3 >/dev/null; then python3 -c 'import json; json.load(open("out.json"))'; fi
    says ' books        8         16         16          8  (the most of a rank)' all_reduce ring --ranks 5 --cost
    says '33546240 messages' all_reduce ring --ranks 4096 --count 1048576 --simulate
    says 'in place: right' all_reduce direct_slices --ranks 4 --verify
    says '2 nodes' all_reduce hierarchical --ranks 8 --node-size 4 --verify
    says '2 nodes' all_reduce hierarchical --ranks 8 --node-size 4 --draw nodes.svg
    holds nodes.svg '>node 1</text>'
    refuses 'it needs a power of two' all_reduce swing --ranks 6
    refuses "has no algorithm 'rings'; it has: ring" all_reduce rings
    refuses 'expected a root below 4, got 9' broadcast chain --root 9
    refuses 'expected rank:late_us:slowdown' all_reduce ring --simulate --straggler 1
    ;;
  pipeline)
    says 'makespan 33, work 24: bubble 9, 27.3 % of the time, 37.5 % of the work; by formula (p-1)(F+B) = 9' \
      pipeline --stages 4 --micro 8 --kind 1f1b
    says 'in their layers: 4 3 2 1; at most, by formula: 4 3 2 1' pipeline --stages 4 --micro 8 --kind 1f1b
    says '22     B4       F7       |        B6' pipeline
    says 'makespan 25.5, work 24: bubble 1.5' pipeline --kind zb-v --verify
    says 'right: each micro-batch through every part once' pipeline --kind zb-v --verify
    says 'in their layers: 5.5 4.5 3.5 2.5' pipeline --kind interleaved --draw pipe.svg
    holds pipe.svg 'interleaved: 4 stages of 2 chunks, 8 micro-batches' '>stash 11 at most</text>' '</svg>'
    says '  recv 1B0 from 1' pipeline --stages 2 --micro 2 --programs
    says '  send 2B0 to 0 for 0' pipeline --stages 3 --micro 1 --skip 0-2 --programs
    says 'right: each micro-batch through every part once' pipeline --kind zb-v --skip 0-2,0-7,3-6 --verify
    refuses "expected skips as 0-2,1-3, got '0-2-3'" pipeline --skip 0-2-3
    refuses 'expected a skip from part 0 to go past the next, to part 3 at most, got 1' pipeline --skip 0-1
    says 'makespan 6.5' pipeline --stages 2 --micro 1 --message 0.25
    says 'zb-h1              27        3    11.1 %    12.5 %         3  (p-1)(F+I-W)  4 4 4 4' pipeline --kind all
    says '7168 proofs, 0 faults' pipeline --verify --all
    refuses "there is no pipeline schedule 'dualpipe'; there are: gpipe 1f1b interleaved zb-h1 zb-v" pipeline --kind dualpipe
    refuses 'expected 2 chunks of a stage, got 3' pipeline --kind zb-v --chunks 3
    refuses 'expected at least one micro-batch, got 0' pipeline --micro 0
    refuses '--all goes with --verify' pipeline --all
    refuses '--kind all compares' pipeline --kind all --verify
    ;;
  verify)
    says 'all, by the clock' verify --all --ranks 1-12
    says 'bruck' verify all_to_all --ranks 1,5,8
    refuses 'expected --all or a collective' verify
    refuses "there is no collective 'alltoall'; there are: all_reduce" verify alltoall
    ;;
  compare)
    says 'recursive_doubling meets rabenseifner, by formula' compare all_reduce --ranks 8,16 --bytes 1K-4M --plot plot.svg
    holds plot.svg 'all_reduce, 16 ranks' 'polyline' '</svg>'
    says 'fastest: recursive_doubling from 1 KiB, rabenseifner from about' \
      compare all_reduce recursive_doubling rabenseifner --ranks 8 --bytes 1K-4M
    echo '{"ranks":4,"start":1e-6,"latency":0,"link":[[64,1e-6],[1048576,1e-4]],"bus":[[64,0]],"reduce":[[64,0]],"copy":[[64,0]]}' >four.json
    says '7.00 us' compare all_reduce ring --ranks 4 --bytes 256 --machine four.json
    refuses 'was measured with 4 ranks on one node, not 8' compare all_reduce --machine four.json
    echo '{"ranks":4}' >less.json
    refuses 'less.json: not a machine that bench/calibrate wrote' compare all_reduce --ranks 4 --machine less.json
    refuses "broadcast has no algorithm 'ring'" compare broadcast ring
    refuses "expected a number, got '1x'" compare broadcast --bytes 1x
    ;;
  explain)
    says 'adds what comes from 2 to out[4..5]' explain all_reduce ring --ranks 3
    says 'Then it has out[0..1] sum of 0-2' explain all_reduce ring --ranks 3
    says 'All ranks do the same' explain reduce_scatter pairwise --ranks 6
    says 'copies scratch[0..1] to out[0..1]; copies scratch[0..1] to out[0..1] of rank 1' explain all_reduce direct_slices --ranks 2
    refuses 'there is no rank 7 among 4' explain all_reduce ring --rank 7
    ;;
  view)
    says 'wrote ring.html' view all_reduce ring --ranks 5 --output ring.html
    holds ring.html '<title>all_reduce by ring, 5 ranks, 10 elements</title>' '"command":"peal-schedule view all_reduce ring' '</html>'
    if grep -nE 'https?://' ring.html | grep -vF 'http://www.w3.org/2000/svg'; then echo 'the page needs a network'; exit 1; fi
    says 'wrote two.html' view all_reduce ring --ranks 8 --beside recursive_doubling --output two.html
    holds two.html '"algorithm":"recursive_doubling"'
    says 'wrote many.html' view all_reduce ring --ranks 64 --output many.html
    [[ $(stat -c %s many.html) -le 1500000 ]] || { echo 'a page of more than 1.5 MB'; exit 1; }
    says 'wrote broken.html' view all_reduce ring --ranks 4 --break drop --output broken.html
    holds broken.html 'deadlock, expected every message to meet its partner' '"waiting":[['
    says 'wrote pipe.html' view pipeline --kind gpipe --beside 1f1b --output pipe.html
    holds pipe.html '<title>gpipe: 4 stages, 8 micro-batches, beside 1f1b</title>' 'by formula (p-1)(F+B) = 9'
    says 'wrote wins.html' view compare all_reduce --ranks 2-8 --bytes 1K-1M --output wins.html
    holds wins.html '<title>all_reduce: who wins, by size and ranks</title>' '"name":"circulant"'
    says 'wrote skips.html' view pipeline --skip 0-2 --output skips.html
    refuses "expected skips as 0-2,1-3, got '0:2'" view pipeline --skip 0:2 --output no.html
    says 'wrote sampler.html' view sampler --samples 30 --ranks 3 --resumed 5 --output sampler.html
    holds sampler.html '<title>Who reads what: 30 samples, 3 ranks, then 5</title>' '["consumed","12"]'
    refuses "samples, batches, split, contiguous or dispatched, got 'by_turns'" view sampler --way by_turns --output no.html
    says 'wrote memory.html' view memory --blocks 3 --width 32 --output memory.html
    holds memory.html '<title>Memory ledger: 25056 parameters in 3 blocks, Adam, 4 ranks</title>' '"name":"ZeRO-2"'
    says 'wrote failure.html' view failure --how shape --output failure.html
    holds failure.html 'is in all_reduce #16 (sum of 255 f32): all ranks must make the same calls'
    refuses 'all or one of killed, throws, shape, root, missing, stopped' view failure --how late --output no.html
    says 'wrote bits.html' view bits --ranks 3 --type f16 --steps 5 --output bits.html
    holds bits.html '<title>Bits: sums of 3 ranks in f16, by every all_reduce</title>' '"(2 + (1 + 0))"'
    says 'wrote lines.html' view lines --ranks 2 --output lines.html
    holds lines.html '<title>Cache lines: all_reduce of 256 f32 by direct_slices, 2 ranks</title>'
    refuses 'ring sends messages' view lines ring --output no.html
    refuses 'a barrier has no sizes' view compare barrier --output no.html
    says 'ran 3 times' all_reduce ring --ranks 3 --count 300 --run measured
    says 'wrote measured.html' view trace measured --output measured.html
    holds measured.html '"name":"model"' '"name":"measured"' 'by ring, 3 ranks: model'
    refuses 'there is no step of data-parallel training' view trace measured --step 0 --output no.html
    refuses 'there is no operation 99 among ' view trace measured --operation 99 --output no.html
    refuses '--break shows one schedule, --beside two' view all_reduce ring --break drop --beside swing --output no.html
    refuses '--output is required' view all_reduce ring
    refuses 'it needs a power of two' view all_reduce ring --ranks 6 --beside swing --output no.html
    ;;
  native)
    says 'mpi                              f32      f64      f16      bf16     i32      i64      u8       i8       bool' native
    says '  all_reduce sum, prod           native   native   as f32   as f32   native   native   native   native   schedule' native
    says '  all_reduce avg, premul_sum     native   native   as f32   as f32   native   native   native   native   -' native all_reduce
    says '  reduce_scatter min, max        schedule schedule schedule schedule native   native   native   native   schedule' native
    says '  reduce_scatter band, bor, bxor -        -        -        -        native' native reduce_scatter
    says '  broadcast                      native   native   native   native   native   native   native   native   native' native
    says '  scatter                        schedule' native
    says '  barrier                        native' native barrier
    says 'threads: nothing is native' native
    says 'mpi: nothing is native' native all_to_all
    refuses "there is no collective 'bcast'" native bcast
    ;;
  break)
    says 'verifier: deadlock' break all_reduce ring --ranks 4 --how drop --draw broken.svg
    holds broken.svg 'The verifier' "class='stuck'"
    for how in shift peer count twice merge swap; do
      says 'verifier: ' break all_reduce recursive_doubling --ranks 4 --how "$how"
    done
    refuses "there is no damage 'hammer'" break all_reduce ring --how hammer
    ;;
  trace)
    says 'a trace has a file for each rank' all_reduce ring --ranks 3 --count 300 --run 'a trace' --straggler 1:500:1
    says ' by ring, 3 ranks: model ' trace 'a trace' --draw out.svg --trace out.json
    says 'all_reduce #' trace 'a trace'
    says ' by ring, 3 ranks: model ' trace 'a trace' --operation 1 --trace one.json
    holds out.svg '>model</text>' '>measured</text>' '</svg>'
    holds one.json '"rank 2 measured"' '"rank 2 model"'
    if command -v python3 >/dev/null; then
      python3 -c 'import json; json.load(open("out.json")); json.load(open("one.json"))'
    fi
    says 'by binomial, 5 ranks' broadcast binomial --ranks 5 --root 2 --node-size 2 --count 7 --run five
    refuses 'there is no operation 99 among 7' trace five --operation 99
    refuses 'cannot read nothing/rank-0.trace' trace nothing
    says 'ran ' all_reduce direct_slices --ranks 2 --run two
    says ' by direct_slices, 2 ranks: model ' trace two --draw two.svg
    ;;
  flight)
    mkdir records
    row() { # row NUMBER SIGNATURE STATE TEXT
      echo "{\"number\":$1,\"group\":\"0\",\"sequence\":$1,\"signature\":\"$2\",\"message\":false,\"state\":\"$3\",\"begin\":1,\"end\":0,\"text\":\"$4\"}"
    }
    record() { # record RANK ROWS [RUN]: its file
      echo "{\"peal_flight\":2,\"run\":\"${3-b2}\",\"rank\":$1,\"world\":3,\"host\":\"here\",\"why\":\"a test\",\"over\":false,\"now\":9,\"written\":9,\"begun\":2,\"operations\":[$2]}" \
        >"records/${3-b2}.rank-$1.flight.json"
    }
    first=$(row 0 aa done 'all_reduce #0 (sum of 4 f32)')
    record 0 "$first"
    record 1 "$first"
    says $'2 of 3 ranks; without a file: 2\nwritten because: a test' flight records
    says 'no difference' flight records
    record 1 "$first,$(row 1 ffffffffffffffff 'under way' 'barrier #1')"
    record 2 "$first,$(row 1 bb 'under way' 'broadcast #1 (4 f32)')"
    refuses 'first difference: rank 1 is in barrier #1, but rank 2 is in broadcast #1 (4 f32)' flight records
    # Another run's records, of this world or another, are no part of it.
    record 0 "$(row 0 cc done 'all_gather #0 (of an earlier run)')" a1
    record 2 "$(row 0 cc done 'all_gather #0 (of an earlier run)')" a1
    refuses 'run 00000000000000b2; left out: 2 files of an earlier run' flight records
    refuses 'first difference: rank 1 is in barrier #1, but rank 2 is in broadcast #1 (4 f32)' flight records
    refuses 'start the ranks with PEAL_FLIGHT=nothing' flight nothing
    echo '{"peal_flight":1}' >records/b2.rank-0.flight.json
    refuses 'b2.rank-0.flight.json: not what PEAL_FLIGHT leaves: it is of version 1' flight records
    ;;
  calibrate)
    export PEAL_TUNING=$folder/tuning PEAL_LOG=warning
    says 'written to' calibrate --threads 2 --bytes 64 --turns 1
    holds tuning 'peal tuning 1' 'group threads, 2 ranks, 1 nodes' 'shared all_reduce=' 'messages all_reduce='
    PEAL_SHARED_MEMORY=0 says 'written to another' calibrate --threads 2 --bytes 64 --turns 1 --native --output another
    holds another 'group threads, 2 ranks, 1 nodes' 'messages all_reduce='
    ! grep -q '^shared' another || { cat another; exit 1; }
    says 'measured on ' choices --file tuning
    says '2 ranks, 1 node, over threads, in memory that they share' choices --file tuning
    refuses 'expected two ranks or more, got 1' calibrate
    refuses 'cannot make the folder /proc/none' calibrate --threads 2 --output /proc/none/file
    PEAL_TUNING=0 refuses 'say where it shall be with --output' calibrate --threads 2
    ;;
  choices)
    says '4 ranks, 1 node, in memory that they share' choices
    says '16 ranks, 2 nodes, by messages' choices --ranks 16 --nodes 2
    says 'fewer cores, in memory that they share' choices --crowded
    echo nonsense >file
    refuses 'is no tuning file for this machine' choices --file file
    ;;
  *)
    echo "no such test: $2"
    exit 1
    ;;
esac
