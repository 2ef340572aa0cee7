#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program that learns texts, on small ones of its own: a language model comes to know the next words, a classifier on
# it the classes; a run of either that is taken up ends as a whole one, on two ranks as well; what it has never seen is
# judged, in folders, archives and CSV files alike; and what is wrong is said.
#   text_test.sh PROGRAM [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: text_test.sh PROGRAM [PEAL_RUN]} launcher=${2-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"
# holds CONDITION LOG WORDS
holds() { awk "BEGIN { exit !($1) }" || { cat "$2"; failed "$3: $1"; }; }

# reviews COUNT FIRST FOLDER: of each class so many, in FOLDER/<class>/. Both are equally long: batches of one length, whose
# mean and variance batch norm takes, are of both classes.
reviews() {
  mkdir -p "$3/good" "$3/bad"
  awk -v count="$1" -v first="$2" -v folder="$3" 'BEGIN {
    split("film plot music cast ending", thing, " "); split("good bad", class, " ")
    say[1] = "The %s is %s, isn\047t it?\n"; say[2] = "We found the %s quite %s, indeed.\n"
    split("great fine lovely clever dull awful silly boring", word, " ")
    for (i = first; i < first + count; ++i) for (c = 0; c < 2; ++c) {
      file = folder "/" class[1 + c] "/" i ".txt"
      for (s = 0; s < 2 + i % 5; ++s)
        printf say[1 + c], thing[1 + (i * 3 + s) % 5], word[1 + 4 * c + (i * 7 + s * s) % 4] >file
      close(file)
    }
  }'
}
reviews 40 0 set/train
reviews 15 100 set/test
(cd set && tar czf ../set.tar.gz train test)

small=("$program" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0.3 --save_strategy epoch)
eight=(--per_device_train_batch_size 8 --per_device_eval_batch_size 8)
judge=("$program" --do_train false --resume_from_checkpoint)
words=("${small[@]}" "${eight[@]}" --learning_rate 0.03 --num_train_epochs 4)
run words.log "${words[@]}" --data set --output_dir words
holds "$(last eval_perplexity words.log) < 6" words.log 'it knows little of what comes next'
grep -qF 'set/test: 30 texts, 1230 tokens, 0 of them unknown words' words.log || { cat words.log; failed 'tokens are not counted'; }
run packed.log "${words[@]}" --data set.tar.gz --output_dir packed --export exported
diff <(figures words.log) <(figures packed.log) || failed 'an archive is another set than its folders'
grep -q '"train.3.0.x"' <(head -c 100000 exported | tr ',' '\n') || failed 'batches of the last epoch are not exported'
run parts.log "${words[@]}" --data set --resume_from_checkpoint words/checkpoint-2-*.safetensors --output_dir parts
diff <(figures words.log | tail -n 6) <(figures parts.log) || failed 'a language model that is taken up goes on otherwise'
same_end words parts || failed 'a language model that is taken up ends otherwise'
cmp words/checkpoint.words parts/checkpoint.words
run judged.log "${judge[@]}" words --data set/test --per_device_eval_batch_size 8
[[ $(figures judged.log) == "$(figures words.log | tail -n 2)" ]] || { cat judged.log; failed 'texts are judged otherwise than while training'; }

# shortest RUN: tokens of the shortest text in what is exported of a training.
shortest() {
  local bytes begin end
  bytes=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  head -c $((8 + bytes)) "$1" | tail -c +9 | grep -oE '"train[0-9.]+lengths":\{[^}]*\}' |
    sed -E 's/.*\[([0-9]+), ?([0-9]+)\].*/\1 \2/' | while read -r begin end; do
    od -An -v -w8 -td8 -j $((8 + bytes + begin)) -N $((end - begin)) "$1"
  done | sort -n | sed -n '1s/ *//p'
}
begun=("$program" --stage classifier --from words --data set --learning_rate 0.03)
classes=("${begun[@]}" "${eight[@]}" --num_train_epochs 4 --drop 0.3 --unfreeze 2 --save_strategy epoch)
for size in 8 32; do
  run few.log "${begun[@]}" --per_device_train_batch_size $size --num_train_epochs 1 --export exported$size
done
[[ $(shortest exported8) == [1-9]* && $(shortest exported32) == "$(shortest exported8)" ]] ||
  failed "of 80 texts, 64 in an epoch, the shortest is $(shortest exported32); expected $(shortest exported8)"
run whole.log "${classes[@]}" --output_dir whole
holds "$(last eval_accuracy whole.log) >= 0.9" whole.log 'it does not tell the classes'
for epoch in 1 3; do
  run parts.log "${classes[@]}" --resume_from_checkpoint whole/checkpoint-$epoch-*.safetensors --output_dir parts$epoch
  same_end whole parts$epoch || failed 'a classifier that is taken up ends otherwise'
done
diff <(figures whole.log | tail -n 3) <(figures parts.log) || failed 'a classifier that is taken up goes on otherwise'
run judged.log "${judge[@]}" whole --data set/test
[[ $(last eval_accuracy judged.log) == "$(last eval_accuracy whole.log)" ]] ||
  { cat judged.log; failed 'a folder is judged otherwise than while training'; }
# told COMMAND...: of texts that nobody knows the classes of, a line each.
told() { run judged.log "$@" && grep ' %)$' judged.log; }
mkdir unsorted
for text in set/test/*/*.txt; do cp "$text" "unsorted/$(tr / - <<<"$text")"; done
[[ $(told "${judge[@]}" whole --data unsorted) != "$(told "${judge[@]}" whole --data unsorted --bf16)" ]] ||
  failed 'texts of unknown classes are judged in another precision than was asked for'

begun+=("${eight[@]}" --num_train_epochs 5 --resume_from_checkpoint whole --save_strategy epoch)
refused 'it was saved with unfreeze 2, and this run has 3' "${begun[@]}" --drop 0.3 --unfreeze 3
refused 'it was saved with drop 0.3, and this run has 0.2' "${begun[@]}" --drop 0.2 --unfreeze 2

mkdir mine
echo 'We found the music quite awful, indeed. We found the plot quite zyxtq, indeed.' >mine/a.txt
echo 'The cast is lovely, the plot is superb, isn'"'"'t it?' >mine/b.txt
found=$(told "${judge[@]}" whole --data mine)
grep -qF 'mine: 2 texts, 37 tokens, 2 of them unknown words' judged.log || { cat judged.log; failed 'unknown words are not counted'; }
[[ $(sed 's/ (.*//' <<<"$found") == $'mine/a.txt: bad\nmine/b.txt: good' ]] ||
  { cat judged.log; failed 'texts of unknown classes are not told apart'; }
[[ $(told "${judge[@]}" whole --data mine/b.txt) == 'mine/b.txt: good ('* ]] || failed 'one text is not judged'
printf 'label,text\ngood,"The film is clever, isn'"'"'t it?"\nbad,"We found the ending quite dull, indeed."\n' >two.csv
gzip -k two.csv
for file in two.csv two.csv.gz; do
  run judged.log "${judge[@]}" whole --data $file
  [[ $(last eval_accuracy judged.log) == 1.0 ]] || { cat judged.log; failed 'a CSV file is not judged'; }
done

# A language model of other words goes on from the first, and knows more than one that begins.
reviews 8 200 new/train
reviews 8 300 new/test
for file in new/*/*/*.txt; do sed -i 's/film/novel/; s/great/thrilling/' "$file"; done
other=("${small[@]}" "${eight[@]}" --data new --learning_rate 0.001 --num_train_epochs 1)
run cold.log "${other[@]}" --output_dir cold
run warm.log "${other[@]}" --output_dir warm --from words
holds "2 * $(last eval_perplexity warm.log) < $(last eval_perplexity cold.log)" warm.log \
  "what the first one learnt helps nothing (alone: $(last eval_perplexity cold.log))"

mkdir -p empty other/flat set2/train/x
refused 'empty: found no .txt file in it or below' "${judge[@]}" whole --data empty
refused 'none.txt: no such text, folder, archive or CSV file of texts' "${judge[@]}" whole --data none.txt
cp mine/a.txt other/flat/
refused "other/flat/a.txt: 'flat' is no class of the set: it knows bad, good" "${judge[@]}" whole --data other
printf 'label,words\ngood,fine\n' >columns.csv
refused "columns.csv: expected a column 'text' of texts, got the columns label, words" "${judge[@]}" whole --data columns.csv
printf 'text,label\nfine,good\nbad,\n' >cells.csv
refused "cells.csv, line 3: expected a class in 'label', got an empty cell" "${judge[@]}" whole --data cells.csv
refused 'set2/train: found no .txt file in x' "$program" --data set2
refused 'nowhere: no such text, folder, archive' "$program" --data nowhere
refused 'where are the texts? Name their folder or archive by --data' "$program"
refused 'there is no model to judge; name its checkpoint (resume_from_checkpoint)' "$program" --do_train false --data mine
refused 'save_strategy steps: a language model keeps the words before a batch' "$program" --data set --save_strategy steps
refused 'a classifier begins with a language model: name its checkpoint by --from' "$program" --stage classifier --data set
refused 'expected a checkpoint of the stage lm, got one of classifier' "$program" --stage classifier --data set --from whole

if [[ -n $launcher ]]; then
  sure=("$program" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0 --learning_rate 0.03
    --num_train_epochs 2 --data set)
  four=(--per_device_train_batch_size 4 --per_device_eval_batch_size 4)
  two=("$launcher" -n 2 "$program" "${four[@]}" --data set --learning_rate 0.03 --num_train_epochs 4 --save_strategy epoch)
  lm=("${two[@]}" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0.3)
  # Nothing is dropped: two ranks learn what one process learns from batches as large as theirs together.
  run one.log "${sure[@]}" "${eight[@]}"
  run two.log "$launcher" -n 2 "${sure[@]}" "${four[@]}"
  alike one.log two.log || failed 'two ranks learn otherwise than one process'
  run two.log "${lm[@]}" --output_dir words2
  run parts.log "${lm[@]}" --resume_from_checkpoint words2/checkpoint-2-*.safetensors --output_dir words2b
  same_end words2 words2b || failed 'a language model of two ranks that is taken up ends otherwise'
  two+=(--stage classifier --from words --drop 0.3 --unfreeze 2)
  run two.log "${two[@]}" --output_dir whole2
  holds "$(last eval_accuracy two.log) >= 0.9" two.log 'two ranks do not tell the classes'
  run parts.log "${two[@]}" --resume_from_checkpoint whole2/checkpoint-1-*.safetensors --output_dir whole2b
  same_end whole2 whole2b || failed 'a classifier of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "${judge[@]}" whole2 --data set/test
  [[ $(last eval_accuracy judged.log) == "$(last eval_accuracy two.log)" ]] || { cat judged.log; failed 'two ranks judge otherwise'; }
fi
echo 'texts are learnt, taken up and judged'
