#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program that learns a text, on a small one of its own: it learns, by characters, by byte pairs and by pieces; a run that is taken
# up ends as a whole one, two ranks learn what one process learns, a text that it has never seen is judged, texts are
# gone on with, and what is wrong is said.
#   gpt_test.sh PROGRAM [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: gpt_test.sh PROGRAM [PEAL_RUN]} launcher=${2-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"
# 1430 characters, of which 1287 are learnt in 160 windows of 8.
awk 'BEGIN {
  split("cat dog fox owl", who, " "); split("sat ran hid", did, " ")
  for (i = 0; i < 130; ++i) printf "the %s %s.\n", who[1 + i * 7 % 4], did[1 + i * i % 3]
}' | head -c 1430 >text
(( $(wc -c <text) == 1430 )) || failed 'the text is too short'
tail -c 143 text >last
shape=(--layers 1 --heads 2 --width 16 --block 8 --learning_rate 0.02 --save_strategy epoch)
train=("$program" --data text "${shape[@]}" --per_device_train_batch_size 8)
judge=("$program" --do_train false --resume_from_checkpoint)
run whole.log "${train[@]}" --num_train_epochs 3 --output_dir whole --generate 'the ' --length 20
awk -v found="$(last eval_perplexity whole.log)" 'BEGIN { exit !(found < 3) }' || { cat whole.log; failed 'it has not learnt'; }
run parts.log "${train[@]}" --num_train_epochs 3 --resume_from_checkpoint whole/checkpoint-1-*.safetensors --output_dir parts
same_end whole parts || failed 'a run that is taken up ends otherwise'
diff <(figures whole.log | tail -n 6) <(figures parts.log) || failed 'a run that is taken up goes on otherwise'
cmp whole/checkpoint.vocabulary parts/checkpoint.vocabulary

run judged.log "${judge[@]}" whole --data last
grep -qF 'last: 143 tokens' judged.log && [[ $(figures judged.log) == "$(figures whole.log | tail -n 2)" ]] ||
  { cat judged.log; failed 'a text is judged otherwise than while training'; }
run bf16.log "${train[@]}" --num_train_epochs 2 --bf16 --output_dir bf16
run judged.log "${judge[@]}" bf16 --data last --bf16
[[ $(figures judged.log) == "$(figures bf16.log | tail -n 2)" ]] ||
  { cat judged.log; failed 'a text is judged in another precision than while training'; }
# The windows of 8 tell 128 tokens, and what is behind them is judged as well.
ends=()
for end in the ...; do
  { head -c 129 text && printf %s "$end"; } >ended
  run judged.log "${judge[@]}" whole --data ended
  grep -qF 'ended: 132 tokens' judged.log || { cat judged.log; failed 'tokens are not counted'; }
  ends+=("$(figures judged.log)")
done
[[ ${ends[0]} != "${ends[1]}" ]] || failed 'the end of a text is not judged'
sample() {
  run sample.log "$program" --resume_from_checkpoint "$1" --generate 'the ' --length 20 "${@:2}"
  cat sample.log
}
first=$(sample whole)
[[ $first == 'the '* ]] && ((${#first} >= 20)) || failed "no text that goes on: $first"
grep -qF "$(head -n 1 <<<"$first")" whole.log || failed 'after training it goes on otherwise'
[[ $(sample whole) == "$first" ]] || failed 'a seed makes two texts'
[[ $(sample whole --seed 5 --temperature 2) != "$first" ]] || failed 'two seeds make one text'
grep -qE '^the (cat|dog|fox|owl) (sat|ran|hid)\.$' <<<"$(sample whole --temperature 0)" ||
  failed 'the likeliest text is none of those that it learnt'

run pairs.log "$program" --data text "${shape[@]}" --per_device_train_batch_size 8 --byte-pairs 12 --num_train_epochs 2 --output_dir pairs
printf 'the \xc3\xa9mu hid.\n' >unseen
run judged.log "${judge[@]}" pairs --data unseen
grep -qE '^unseen: [0-9]+ tokens$' judged.log && [[ -n $(last eval_perplexity judged.log) ]] || { cat judged.log; failed 'no figures'; }
[[ $(sample pairs) == 'the '* ]] || failed 'byte pairs do not go on'

# Of a build without sentencepiece, what to install.
pieces=("$program" --data text "${shape[@]}" --per_device_train_batch_size 8 --pieces 277 --num_train_epochs 2 --output_dir pieces)
if "${pieces[@]}" >pieces.log 2>&1; then
  run judged.log "${judge[@]}" pieces --data unseen
  grep -qE '^unseen: [0-9]+ tokens$' judged.log && [[ -n $(last eval_perplexity judged.log) ]] || { cat judged.log; failed 'no figures'; }
  [[ $(sample pieces) == 'the '* ]] || failed 'pieces do not go on'
else
  grep -qF 'apt-get install libsentencepiece-dev' pieces.log || { cat pieces.log; failed 'pieces are not learnt'; }
fi
refused 'by --byte-pairs or by --pieces, not by both' "${pieces[@]}" --byte-pairs 12

: >empty
printf x >one
refused 'empty is empty; expected a text' "$program" --data empty
refused 'empty is empty; expected a text' "${judge[@]}" whole --data empty
refused 'one: expected a text of two tokens or more, got 1' "${judge[@]}" pairs --data one
refused 'nowhere: no such file' "$program" --data nowhere
refused "unseen: [data] characters, line 1: 'é' is none of the" "${judge[@]}" whole --data unseen
refused "generate: [data] characters, line 1: 'Q' is none of the" "$program" --resume_from_checkpoint whole --generate Q
refused 'name its checkpoint (resume_from_checkpoint)' "$program" --generate the
refused 'what shall it learn? Name a text by --data' "$program" --resume_from_checkpoint whole
printf '\x02\0\0\0\0\0\0\0{}' >other
refused 'other: this is a model, not a checkpoint' "${judge[@]}" other --data last
again=(--num_train_epochs 4 --per_device_train_batch_size 8 --resume_from_checkpoint whole)
refused 'it was saved with width 16, and this run has 32; go on with the same' "$program" --data text \
  --layers 1 --heads 2 --width 32 --block 8 "${again[@]}"
refused 'was saved with data text, and this run has last' "$program" --data last "${shape[@]}" "${again[@]}"
tr c k <last >other
refused 'was saved with data text, and this run has other' "$program" --data other "${shape[@]}" "${again[@]}" --output_dir whole
cmp whole/checkpoint.vocabulary parts/checkpoint.vocabulary || failed 'a run that is refused leaves its vocabulary beside a model'
rm parts/checkpoint.vocabulary
refused 'parts/checkpoint.vocabulary: no such file' "${judge[@]}" parts --data last

if [[ -n $launcher ]]; then
  two=("$launcher" -n 2 "$program" --data text "${shape[@]}" --per_device_train_batch_size 4)
  run two.log "${two[@]}" --num_train_epochs 3 --output_dir two
  alike whole.log two.log || failed 'two ranks learn otherwise than one process'
  run parts.log "${two[@]}" --num_train_epochs 3 --resume_from_checkpoint two/checkpoint-1-*.safetensors --output_dir parts2
  same_end two parts2 || failed 'a run of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "${judge[@]}" two --data last --generate 'the '
  [[ $(last eval_perplexity judged.log) == "$(last eval_perplexity two.log)" ]] || { cat judged.log; failed 'two ranks judge otherwise'; }
  refused 'export batches: expected a run of one rank, got one of 2' "${two[@]}" --output_dir three --export batches
  [[ ! -e batches ]] || failed 'a rank has exported its share'
fi
echo 'a text is learnt, taken up, judged and gone on with'
