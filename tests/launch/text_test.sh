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

small=("$program" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0.3)
packed=("${small[@]}" --batch-size 8 --lr 0.03 --epochs 4 --data set.tar.gz)
words=("${small[@]}" --batch-size 8 --lr 0.03 --epochs 4 --data set)
run words.log "${words[@]}" --save words
holds "$(last words.log) < 6" words.log 'it knows little of what comes next'
grep -qF 'set/test: 30 texts, 1230 tokens, 0 of them unknown words' words.log || { cat words.log; failed 'tokens are not counted'; }
run packed.log "${packed[@]}" --until 1 --export exported
diff <(figures words.log | head -n 1) <(figures packed.log) || failed 'an archive is another set than its folders'
grep -q '"train.3.0.x"' <(head -c 100000 exported | tr ',' '\n') || failed 'batches of the last epoch are not exported'
run parts.log "${words[@]}" --until 2 --save parts
run parts.log "${words[@]}" --resume parts --save parts
diff <(figures words.log | tail -n 2) <(figures parts.log) || failed 'a language model that is taken up goes on otherwise'
cmp words parts || failed 'a language model that is taken up ends otherwise'
cmp words.words parts.words
run judged.log "$program" --resume words --evaluate set/test --batch-size 8
grep -qF "set/test: perplexity $(last words.log)" judged.log || { cat judged.log; failed 'texts are judged otherwise than while training'; }

# shortest RUN: tokens of the shortest text in what is exported of a training.
shortest() {
  local bytes begin end
  bytes=$(od -An -tu8 -N8 "$1" | tr -d ' ')
  head -c $((8 + bytes)) "$1" | tail -c +9 | grep -oE '"train[0-9.]+lengths":\{[^}]*\}' |
    sed -E 's/.*\[([0-9]+), ?([0-9]+)\].*/\1 \2/' | while read -r begin end; do
    od -An -v -w8 -td8 -j $((8 + bytes + begin)) -N $((end - begin)) "$1"
  done | sort -n | sed -n '1s/ *//p'
}
begun=("$program" --stage classifier --from words --data set --lr 0.03 --epochs 4)
classes=("${begun[@]}" --batch-size 8 --drop 0.3 --unfreeze 2)
for size in 8 32; do run few.log "${begun[@]}" --batch-size $size --until 1 --export exported$size; done
[[ $(shortest exported8) == [1-9]* && $(shortest exported32) == "$(shortest exported8)" ]] ||
  failed "of 80 texts, 64 in an epoch, the shortest is $(shortest exported32); expected $(shortest exported8)"
run whole.log "${classes[@]}" --save whole
holds "$(last whole.log) >= 90" whole.log 'it does not tell the classes'
run parts.log "${classes[@]}" --until 1 --save parts
run parts.log "${classes[@]}" --until 3 --resume parts --save parts
run parts.log "${classes[@]}" --resume parts --save parts
diff <(figures whole.log | tail -n 1) <(figures parts.log) || failed 'a classifier that is taken up goes on otherwise'
cmp whole parts || failed 'a classifier that is taken up ends otherwise'
run judged.log "$program" --resume whole --evaluate set/test
grep -qF "set/test: accuracy $(last whole.log) %" judged.log || { cat judged.log; failed 'a folder is judged otherwise than while training'; }
mkdir unsorted
for text in set/test/*/*.txt; do cp "$text" "unsorted/$(tr / - <<<"$text")"; done
run f32.log "$program" --resume whole --evaluate unsorted
run judged.log "$program" --resume whole --evaluate unsorted --precision bf16
! cmp -s f32.log judged.log || failed 'texts of unknown classes are judged in another precision than was asked for'

begun+=(--batch-size 8 --resume whole)
refused 'whole: it was saved with unfreeze 2, and this run has 3' "${begun[@]}" --drop 0.3 --unfreeze 3
refused 'whole: it was saved with drop 0.3, and this run has 0.2' "${begun[@]}" --drop 0.2 --unfreeze 2

mkdir mine
echo 'We found the music quite awful, indeed. We found the plot quite zyxtq, indeed.' >mine/a.txt
echo 'The cast is lovely, the plot is superb, isn'"'"'t it?' >mine/b.txt
run judged.log "$program" --resume whole --evaluate mine
grep -qF 'mine: 2 texts, 37 tokens, 2 of them unknown words' judged.log || { cat judged.log; failed 'unknown words are not counted'; }
[[ $(sed '1d; s/ (.*//' judged.log) == $'mine/a.txt: bad\nmine/b.txt: good' ]] ||
  { cat judged.log; failed 'texts of unknown classes are not told apart'; }
run judged.log "$program" --resume whole --evaluate mine/b.txt
grep -qE '^mine/b.txt: good \([0-9.]+ %\)$' judged.log
printf 'label,text\ngood,"The film is clever, isn'"'"'t it?"\nbad,"We found the ending quite dull, indeed."\n' >two.csv
run judged.log "$program" --resume whole --evaluate two.csv
grep -qF 'two.csv: accuracy 100.00 %' judged.log || { cat judged.log; failed 'a CSV file is not judged'; }

gzip -k two.csv
run judged.log "$program" --resume whole --evaluate two.csv.gz
grep -qF 'two.csv.gz: accuracy 100.00 %' judged.log || { cat judged.log; failed 'a packed CSV file is not judged'; }

# A language model of other words goes on from the first, and knows more than one that begins.
reviews 8 200 new/train
reviews 8 300 new/test
for file in new/*/*/*.txt; do sed -i 's/film/novel/; s/great/thrilling/' "$file"; done
other=("${small[@]}" --batch-size 8 --data new --lr 0.001 --epochs 1)
run cold.log "${other[@]}"
run warm.log "${other[@]}" --from words
holds "2 * $(last warm.log) < $(last cold.log)" warm.log "what the first one learnt helps nothing (alone: $(last cold.log))"

mkdir -p empty other/flat set2/train/x
refused 'empty: found no .txt file in it or below' "$program" --resume whole --evaluate empty
refused 'none.txt: no such text, folder, archive or CSV file of texts' "$program" --resume whole --evaluate none.txt
cp mine/a.txt other/flat/
refused "other/flat/a.txt: 'flat' is no class of the set: it knows bad, good" "$program" --resume whole --evaluate other
printf 'label,words\ngood,fine\n' >columns.csv
refused "columns.csv: expected a column 'text' of texts, got the columns label, words" "$program" --resume whole --evaluate columns.csv
printf 'text,label\nfine,good\nbad,\n' >cells.csv
refused "cells.csv, line 3: expected a class in 'label', got an empty cell" "$program" --resume whole --evaluate cells.csv
refused 'set2/train: found no .txt file in x' "$program" --data set2
refused 'nowhere: no such text, folder, archive' "$program" --data nowhere
refused 'where are the texts? Name their folder or archive by --data' "$program"
refused 'judges a model that there is: name its checkpoint by --resume' "$program" --evaluate mine
refused 'a classifier begins with a language model: name its checkpoint by --from' "$program" --stage classifier --data set
refused 'whole: expected a checkpoint of the stage lm, got one of classifier' "$program" --stage classifier --data set --from whole

if [[ -n $launcher ]]; then
  sure=("$program" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0 --lr 0.03 --epochs 2 --data set)
  two=("$launcher" -n 2 "$program" --batch-size 4 --data set --lr 0.03 --epochs 4)
  lm=("${two[@]}" --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2)
  # Nothing is dropped: two ranks learn what one process learns from batches as large as theirs together.
  run one.log "${sure[@]}" --batch-size 8
  run two.log "$launcher" -n 2 "${sure[@]}" --batch-size 4
  alike one.log two.log || failed 'two ranks learn otherwise than one process'
  run two.log "${lm[@]}" --drop 0.3 --save words2
  run parts.log "${lm[@]}" --drop 0.3 --until 2 --save parts
  run parts.log "${lm[@]}" --drop 0.3 --resume parts --save parts
  cmp words2 parts || failed 'a language model of two ranks that is taken up ends otherwise'
  two+=(--stage classifier --from words --drop 0.3 --unfreeze 2)
  run two.log "${two[@]}" --save whole2
  holds "$(last two.log) >= 90" two.log 'two ranks do not tell the classes'
  run parts.log "${two[@]}" --until 1 --save parts
  run parts.log "${two[@]}" --resume parts --save parts
  cmp whole2 parts || failed 'a classifier of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "$program" --resume whole2 --evaluate set/test
  grep -qF "accuracy $(last two.log) %" judged.log || { cat judged.log; failed 'two ranks judge otherwise'; }
fi
echo 'texts are learnt, taken up and judged'
