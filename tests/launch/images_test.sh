#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program that learns images, on a small set of its own: it learns, from folders as from an archive; a run that is
# taken up ends as a whole one, on two ranks as well; what it has never seen is judged; and what is wrong is said.
#   images_test.sh PROGRAM WRITER [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

program=${1:?usage: images_test.sh PROGRAM WRITER [PEAL_RUN]} writer=${2:?} launcher=${3-}
source "${BASH_SOURCE[0]%/*}/program_frame.sh"

"$writer" set
(cd set && tar cf ../set.tar train test && gzip -k ../set.tar)
train=("$program" --size 16 --batch-size 12 --lr 0.03)
run whole.log "${train[@]}" --data set --epochs 3 --save whole
awk -v found="$(last whole.log)" 'BEGIN { exit !(found >= 90) }' || { cat whole.log; failed 'it has not learnt'; }
run packed.log "${train[@]}" --data set.tar.gz --epochs 3 --until 1
diff <(figures whole.log | head -n 1) <(figures packed.log) || failed 'an archive is another set than its folders'
run parts.log "${train[@]}" --data set --epochs 3 --until 1 --save parts
run parts.log "${train[@]}" --data set --epochs 3 --resume parts --save parts
diff <(figures whole.log | tail -n 2) <(figures parts.log) || failed 'a run that is taken up goes on otherwise'
cmp whole parts || failed 'a run that is taken up ends otherwise'
run mixed.log "${train[@]}" --data set --model xresnet18 --epochs 1 --mixup 0.4 --label-smoothing 0.1

run judged.log "$program" --resume whole --evaluate set/test
grep -qF "set/test: 24 images, accuracy $(last whole.log) %" judged.log ||
  { cat judged.log; failed 'a folder is judged otherwise than while training'; }
run bf16.log "${train[@]}" --data set --epochs 2 --precision bf16 --save bf16
run judged.log "$program" --resume bf16 --evaluate set/test --precision bf16
grep -qF "set/test: 24 images, accuracy $(last bf16.log) %" judged.log ||
  { cat judged.log; failed 'a folder is judged in another precision than while training'; }
mkdir unsorted
for image in set/test/*/*.*; do cp "$image" "unsorted/$(tr / - <<<"$image")"; done
run f32.log "$program" --resume bf16 --evaluate unsorted
run judged.log "$program" --resume bf16 --evaluate unsorted --precision bf16
! cmp -s f32.log judged.log || failed 'images of unknown classes are judged in another precision than was asked for'
mkdir photos
cp set/test/rising/0.jpg photos/b.jpg
cp set/test/falling/3.png photos/a.png
run judged.log "$program" --resume whole --evaluate photos
[[ $(sed 's/ (.*//' judged.log) == $'photos/a.png: falling\nphotos/b.jpg: rising' ]] ||
  { cat judged.log; failed 'images of unknown classes are not told apart'; }
run judged.log "$program" --resume whole --evaluate photos/b.jpg
grep -qE '^photos/b.jpg: rising \([0-9.]+ %\)$' judged.log

cp set/large.png photos/large.png
run judged.log "$program" --resume whole --evaluate photos
grep -q '^photos/large.png: rising (' judged.log || { cat judged.log; failed 'an image of another size is not judged'; }
mkdir -p sizes/train sizes/test
cp -r set/train/rising set/train/falling sizes/train
cp set/large.png sizes/train/rising
cp -r set/test/* sizes/test
cp set/large.png sizes/test/rising
run sizes.log "${train[@]}" --data sizes --epochs 1
cp set/large.png sizes/test
run judged.log "$program" --resume whole --evaluate sizes/test
grep -qF 'sizes/test: 1 images lie beside the folders of classes, and are left out' judged.log ||
  { cat judged.log; failed 'images beside the folders are left out without a word'; }
grep -qF 'sizes/test: 25 images, accuracy' judged.log

mixed=("${train[@]}" --data set --epochs 3)
run mixed.log "${mixed[@]}" --until 1 --mixup 0.4 --label-smoothing 0.1 --save mixed
refused 'mixed: it was saved with mixup 0.4, and this run has 0' "${mixed[@]}" --label-smoothing 0.1 --resume mixed
refused 'mixed: it was saved with label-smoothing 0.1, and this run has 0' "${mixed[@]}" --mixup 0.4 --resume mixed

head -c 300 set/test/rising/0.jpg >photos/broken.jpg
refused 'photos/broken.jpg: cannot be read as JPEG: ' "$program" --resume whole --evaluate photos
refused 'photos/none.jpg: no such image or folder' "$program" --resume whole --evaluate photos/none.jpg
mkdir -p empty other/flat/ set2/train/x
refused 'empty: found no .jpg, .jpeg or .png file' "$program" --resume whole --evaluate empty
cp set/test/rising/0.jpg other/flat/
refused "other: 'flat' is no class of the set: it knows falling, rising" "$program" --resume whole --evaluate other
refused 'judges a model that there is: name its checkpoint by --resume' "$program" --evaluate photos
refused 'nowhere: no such folder or archive of images; name one by --data' "$program" --data nowhere
refused 'set2/train: found no .jpg, .jpeg or .png file in x' "$program" --data set2
refused 'expected the model resnet18, resnet34, resnet50 or xresnet18, got vgg' "${train[@]}" --data set --model vgg

if [[ -n $launcher ]]; then
  two=("$launcher" -n 2 "$program" --data set --size 16 --batch-size 6 --lr 0.03 --epochs 3)
  run two.log "${two[@]}" --save two
  awk -v found="$(last two.log)" 'BEGIN { exit !(found >= 90) }' || { cat two.log; failed 'two ranks have not learnt'; }
  run parts.log "${two[@]}" --until 1 --save parts
  run parts.log "${two[@]}" --resume parts --save parts
  cmp two parts || failed 'a run of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "$program" --resume two --evaluate set/test
  grep -qF "accuracy $(last two.log) %" judged.log || { cat judged.log; failed 'two ranks judge otherwise'; }
fi
echo 'images are learnt, taken up and judged'
