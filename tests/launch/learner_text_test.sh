#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The Learners of texts on small ones of their own: a language model comes to know the next words, a classifier on its
# encoder the classes, and what it exports tells texts apart in another process.
#   learner_text_test.sh PROGRAM [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: learner_text_test.sh PROGRAM [PEAL_RUN]} launcher=${2-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"
export PEAL_PROGRESS=none

# reviews COUNT FIRST FOLDER: of each class so many, in FOLDER/<class>/.
reviews() {
  mkdir -p "$3/good" "$3/bad"
  awk -v count="$1" -v first="$2" -v folder="$3" 'BEGIN {
    split("film plot music cast ending", thing, " "); split("good bad", class, " ")
    split("great fine lovely clever dull awful silly boring", word, " ")
    for (i = first; i < first + count; ++i) for (c = 0; c < 2; ++c) {
      file = folder "/" class[1 + c] "/" i ".txt"
      for (s = 0; s < 2 + i % 5; ++s)
        printf "The %s is %s.\n", thing[1 + (i * 3 + s) % 5], word[1 + 4 * c + (i * 7 + s * s) % 4] >file
      close(file)
    }
  }'
}
reviews 40 0 set/train
reviews 15 100 set/test
echo 'The plot is lovely. The cast is great.' >praise.txt
echo 'The plot is dull. The cast is awful.' >blame.txt
# learns COMMAND...: the classifier's last accuracy is 0.9 or more, and what it exports tells the two apart.
learns() {
  run learn.log "$@" --data set --emb 12 --hidden 20 --layers 2 --seq-len 16 --min-count 2 --drop 0.3 --lm-epochs 6 \
    --lr 0.1 --epochs 16 --export model
  grep -q 'perplexity' learn.log || { cat learn.log; failed 'there is no language model'; }
  awk '/^15 +[0-9]/ { found = $4 } END { exit !(found >= 0.9) }' learn.log || { cat learn.log; failed 'it has not learnt'; }
  for text in praise:good blame:bad; do
    run judged.log "$program" --load model --predict "${text%:*}.txt"
    grep -q "${text%:*}.txt: ${text#*:} (" judged.log || { cat judged.log; failed "$text is judged otherwise"; }
  done
}
learns "$program" --batch-size 8
refused 'name texts to learn from' "$program" --load model
if [[ -n $launcher ]]; then learns "$launcher" -n 2 "$program" --batch-size 4; fi
echo 'texts are learnt, exported and judged'
