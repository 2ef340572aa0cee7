#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program that learns a table, on a small one of its own: a run that is taken up ends as a whole one, two ranks learn
# what one process learns, a file that it has never seen is judged, and what is wrong with one is said.
#   table_test.sh PROGRAM [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: table_test.sh PROGRAM [PEAL_RUN]} launcher=${2-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"

# people COUNT FIRST STOP: rows as of adult.data, whose last word depends on age, job and luck; STOP is behind it.
people() {
  awk -v count="$1" -v first="$2" -v stop="$3" 'BEGIN {
    split("Sales Craft-repair Exec-managerial ?", job, " "); split("Private State-gov ?", work, " ")
    for (i = first; i < first + count; ++i) {
      age = 20 + (i * 37) % 50; k = 1 + (i * 11) % 4; rich = (age > 40) + (k == 3) + (i * 7 % 10 == 0) > 1
      printf "%d, %s, %d, HS-grad, %d, Divorced, %s, Husband, White, %s, %d, 0, %d, United-States, %s%s\n",
        age, work[1 + i % 3], 10000 + i * 991 % 7919, 5 + i % 9, job[k], i % 2 ? "Male" : "Female", i % 5 ? 0 : 2174,
        20 + i * 13 % 40, rich ? ">50K" : "<=50K", stop
    }
  }'
}
mkdir adult
people 200 0 '' >adult/adult.data
{ echo '|1x3 Cross validator'; people 90 1000 .; } >adult/adult.test  # as UCI has it
people 50 3000 '' >others.csv

train=("$program" --data adult --per_device_train_batch_size 32 --save_strategy epoch)
judge=("$program" --do_train false --resume_from_checkpoint)
run whole.log "${train[@]}" --num_train_epochs 3 --output_dir whole
run parts.log "${train[@]}" --num_train_epochs 1 --output_dir parts
! same_end whole parts >cmp.log || failed 'two more epochs changed nothing'
run parts.log "${train[@]}" --num_train_epochs 3 --resume_from_checkpoint true --output_dir parts
same_end whole parts || failed 'a run that is taken up ends otherwise'
diff <(figures whole.log | tail -n 8) <(figures parts.log)
cmp whole/checkpoint.table.json parts/checkpoint.table.json

run judged.log "${judge[@]}" whole --data adult/adult.test
grep -q 'Num examples = 90' judged.log && [[ $(figures judged.log) == "$(figures whole.log | tail -n 3)" ]] ||
  { cat judged.log; failed 'a file is judged otherwise than while training'; }
sed '7s/United-States/Narnia/; 9s/Narnia//; 12s/United-States/Narnia/' others.csv >unknown.csv
run judged.log "${judge[@]}" whole --data unknown.csv
grep -q "unknown.csv, line 7, column 'native-country': 'Narnia' is none of the 1 words that training had; 2 of 50" \
  judged.log || { cat judged.log; failed 'an unknown word is not told'; }
grep -q 'Num examples = 50' judged.log

run piped.log "${judge[@]}" whole --data <(cat others.csv)
grep -q 'Num examples = 50' piped.log || { cat piped.log; failed 'a pipe is not read to its end'; }
: >none.csv
refused 'the data to evaluate with is empty' "${judge[@]}" whole --data none.csv

sed '3s/, Divorced//' others.csv >ragged.csv
refused 'ragged.csv, line 3: expected 15 cells, as there are names, got 14' "${judge[@]}" whole --data ragged.csv
sed '5s/^[0-9]*/old/' others.csv >words.csv
refused "words.csv, line 5, column 'age': expected a number, got 'old'" "${judge[@]}" whole --data words.csv
sed '2s/.50K$/rich/; 2s/<=50K$/rich/' others.csv >rich.csv
refused "rich.csv, line 2, column 'income': expected one of '<=50K', '>50K', got '" "${judge[@]}" whole --data rich.csv
refused 'nowhere.csv: no such file' "${judge[@]}" whole --data nowhere.csv
refused 'there is no model to judge; name its checkpoint (resume_from_checkpoint)' "$program" --do_train false --data others.csv
mkdir empty
refused 'empty/adult.data: no such file' "$program" --data empty
: >empty/adult.data
refused 'empty/adult.data: there is no row to learn from' "$program" --data empty
refused 'Name their folder by --data' "$program"

if [[ -n $launcher ]]; then
  two=("$launcher" -n 2 "$program" --data adult --per_device_train_batch_size 16 --save_strategy epoch)
  run two.log "${two[@]}" --num_train_epochs 3 --output_dir two
  alike whole.log two.log || failed 'two ranks learn otherwise than one process'
  run parts.log "${two[@]}" --num_train_epochs 3 --resume_from_checkpoint two/checkpoint-1-*.safetensors --output_dir parts2
  same_end two parts2 || failed 'a run of two ranks that is taken up ends otherwise'
  run judged.log "${judge[@]}" two --data adult/adult.test
  [[ $(last eval_accuracy judged.log) == "$(last eval_accuracy two.log)" ]] || failed 'one process judges otherwise'
  run judged.log "$launcher" -n 2 "${judge[@]}" two --data adult/adult.test
  [[ $(last eval_accuracy judged.log) == "$(last eval_accuracy two.log)" ]] || failed 'two ranks judge otherwise'
  mkfifo pipe
  # Held open both ways, so that nobody waits for somebody to open it.
  refused 'pipe: expected a file that each of the 2 ranks can read, got a pipe' "$launcher" -n 2 \
    "${judge[@]}" two --data pipe 9<>pipe
  refused 'the data to evaluate with is empty' "$launcher" -n 2 "${judge[@]}" two --data none.csv
fi
echo 'a table is learnt, taken up and judged'
