#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The vision Learner on a small set of its own: it learns, with mixup as well, and the model that it exports says what
# images show in another process.
#   learner_images_test.sh PROGRAM WRITER [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: learner_images_test.sh PROGRAM WRITER [PEAL_RUN]} writer=${2:?} launcher=${3-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"
export PEAL_PROGRESS=none

"$writer" set
mkdir photos
cp set/test/rising/0.jpg photos/b.jpg
cp set/test/falling/3.png photos/a.png
# learns COMMAND...: the last epoch's accuracy is 0.9 or more, and what it exports tells the photos apart.
learns() {
  run learn.log "$@" --data set --size 16 --lr 0.005 --epochs 6 --export model
  awk '/^5 +[0-9]/ { found = $4 } END { exit !(found >= 0.9) }' learn.log || { cat learn.log; failed 'it has not learnt'; }
  run judged.log "$program" --load model --predict photos
  [[ $(sed 's/ (.*//' judged.log) == $'photos/a.png: falling\nphotos/b.jpg: rising' ]] ||
    { cat judged.log; failed 'images of unknown classes are not told apart'; }
}
learns "$program" --batch-size 12
run mixed.log "$program" --data set --size 16 --batch-size 12 --epochs 1 --mixup 0.4 --label-smoothing 0.1
refused 'name images to learn from' "$program" --load model
if [[ -n $launcher ]]; then learns "$launcher" -n 2 "$program" --batch-size 6; fi
echo 'images are learnt, exported and judged'
