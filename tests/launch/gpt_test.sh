#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program that learns a text, on a small one of its own: it learns, by characters, by byte pairs and by pieces; a run that is taken
# up ends as a whole one, two ranks learn what one process learns, a text that it has never seen is judged, texts are
# gone on with, and what is wrong is said.
#   gpt_test.sh PROGRAM [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: gpt_test.sh PROGRAM [PEAL_RUN]} launcher=${2-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"
figures() { grep -o 'epoch [0-9]*: loss [0-9.]*, test loss [0-9.]*, test perplexity [0-9.]*' "$1"; }
last_figures() { figures "$1" | tail -n 1 | sed 's/.*test loss/loss/; s/test //'; }

# 1430 characters, of which 1287 are learnt in 160 windows of 8.
awk 'BEGIN {
  split("cat dog fox owl", who, " "); split("sat ran hid", did, " ")
  for (i = 0; i < 130; ++i) printf "the %s %s.\n", who[1 + i * 7 % 4], did[1 + i * i % 3]
}' | head -c 1430 >text
(( $(wc -c <text) == 1430 )) || failed 'the text is too short'
tail -c 143 text >last
shape=(--layers 1 --heads 2 --width 16 --block 8 --lr 0.02)
train=("$program" --data text "${shape[@]}" --batch-size 8)
run whole.log "${train[@]}" --epochs 3 --save whole --generate 'the ' --length 20
awk -v found="$(last_figures whole.log | sed 's/.*perplexity //')" 'BEGIN { exit !(found < 3) }' ||
  { cat whole.log; failed 'it has not learnt'; }
run parts.log "${train[@]}" --epochs 3 --until 1 --save parts
run parts.log "${train[@]}" --epochs 3 --resume parts --save parts
cmp whole parts || failed 'a run that is taken up ends otherwise'
diff <(figures whole.log | tail -n 2) <(figures parts.log) || failed 'a run that is taken up goes on otherwise'
cmp whole.vocabulary parts.vocabulary

run judged.log "$program" --resume whole --evaluate last
grep -qF "last: 143 tokens, $(last_figures whole.log)" judged.log ||
  { cat judged.log; failed 'a text is judged otherwise than while training'; }
run bf16.log "${train[@]}" --epochs 2 --precision bf16 --save bf16
run judged.log "$program" --resume bf16 --evaluate last --precision bf16
grep -qF "last: 143 tokens, $(last_figures bf16.log)" judged.log ||
  { cat judged.log; failed 'a text is judged in another precision than while training'; }
# The windows of 8 tell 128 tokens, and what is behind them is judged as well.
ends=()
for end in the ...; do
  { head -c 129 text && printf %s "$end"; } >ended
  run judged.log "$program" --resume whole --evaluate ended
  grep -qF 'ended: 132 tokens, loss ' judged.log || { cat judged.log; failed 'tokens are not counted'; }
  ends+=("$(cat judged.log)")
done
[[ ${ends[0]} != "${ends[1]}" ]] || failed 'the end of a text is not judged'
sample() {
  run sample.log "$program" --resume "$1" --generate 'the ' --length 20 "${@:2}"
  cat sample.log
}
first=$(sample whole)
[[ $first == 'the '* ]] && ((${#first} >= 20)) || failed "no text that goes on: $first"
grep -qF "$(head -n 1 <<<"$first")" whole.log || failed 'after training it goes on otherwise'
[[ $(sample whole) == "$first" ]] || failed 'a seed makes two texts'
[[ $(sample whole --seed 5 --temperature 2) != "$first" ]] || failed 'two seeds make one text'
grep -qE '^the (cat|dog|fox|owl) (sat|ran|hid)\.$' <<<"$(sample whole --temperature 0)" ||
  failed 'the likeliest text is none of those that it learnt'

run pairs.log "$program" --data text "${shape[@]}" --batch-size 8 --byte-pairs 12 --epochs 2 --save pairs
printf 'the \xc3\xa9mu hid.\n' >unseen
run judged.log "$program" --resume pairs --evaluate unseen
grep -qE '^unseen: [0-9]+ tokens, loss [0-9.]+, perplexity [0-9.]+$' judged.log || { cat judged.log; failed 'no figures'; }
[[ $(sample pairs) == 'the '* ]] || failed 'byte pairs do not go on'

# Of a build without sentencepiece, what to install.
pieces=("$program" --data text "${shape[@]}" --batch-size 8 --pieces 277 --epochs 2 --save pieces)
if "${pieces[@]}" >pieces.log 2>&1; then
  run judged.log "$program" --resume pieces --evaluate unseen
  grep -qE '^unseen: [0-9]+ tokens, loss [0-9.]+, perplexity [0-9.]+$' judged.log || { cat judged.log; failed 'no figures'; }
  [[ $(sample pieces) == 'the '* ]] || failed 'pieces do not go on'
else
  grep -qF 'apt-get install libsentencepiece-dev' pieces.log || { cat pieces.log; failed 'pieces are not learnt'; }
fi
refused 'by --byte-pairs or by --pieces, not by both' "${pieces[@]}" --byte-pairs 12

: >empty
printf x >one
refused 'empty is empty; expected a text' "$program" --data empty
refused 'empty is empty; expected a text' "$program" --resume whole --evaluate empty
refused 'one: expected a text of two tokens or more, got 1' "$program" --resume pairs --evaluate one
refused 'nowhere: no such file' "$program" --data nowhere
refused "unseen: [data] characters, line 1: 'é' is none of the" "$program" --resume whole --evaluate unseen
refused "generate: [data] characters, line 1: 'Q' is none of the" "$program" --resume whole --generate Q
refused 'name its checkpoint by --resume' "$program" --generate the
refused 'what shall it learn? Name a text by --data' "$program" --resume whole
printf '\x02\0\0\0\0\0\0\0{}' >other
refused "other has no setting 'byte_pairs'; is it a checkpoint of another program, or of an older version of this one?" "$program" --resume other --evaluate last
refused 'whole: it was saved with width 16, and this run has 32; go on with the same' "$program" --data text \
  --layers 1 --heads 2 --width 32 --block 8 --batch-size 8 --epochs 4 --resume whole
refused 'was saved with data text, and this run has last' "$program" --data last "${shape[@]}" --epochs 4 \
  --batch-size 8 --resume whole
tr c k <last >other
refused 'was saved with data text, and this run has other' "$program" --data other "${shape[@]}" --epochs 4 \
  --batch-size 8 --resume whole --save whole
cmp whole.vocabulary parts.vocabulary || failed 'a run that is refused leaves its vocabulary beside a model'
rm parts.vocabulary
refused 'parts.vocabulary: no such file' "$program" --resume parts --evaluate last

if [[ -n $launcher ]]; then
  two=("$launcher" -n 2 "$program" --data text "${shape[@]}" --batch-size 4)
  run two.log "${two[@]}" --epochs 3 --save two
  alike whole.log two.log || failed 'two ranks learn otherwise than one process'
  run parts.log "${two[@]}" --epochs 3 --until 1 --save parts
  run parts.log "${two[@]}" --epochs 3 --resume parts --save parts
  cmp two parts || failed 'a run of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "$program" --resume two --evaluate last --generate 'the '
  grep -qF "last: 143 tokens, $(last_figures two.log)" judged.log || { cat judged.log; failed 'two ranks judge otherwise'; }
  refused 'export batches: expected a run of one rank, got one of 2' "${two[@]}" --export batches
  [[ ! -e batches ]] || failed 'a rank has exported its share'
fi
echo 'a text is learnt, taken up, judged and gone on with'
