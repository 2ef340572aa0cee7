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
train=("$program" --size 16 --per_device_train_batch_size 12 --learning_rate 0.03)
judge=("$program" --do_train false --resume_from_checkpoint)
run whole.log "${train[@]}" --data set --num_train_epochs 3 --save_strategy epoch --output_dir whole
awk -v found="$(last eval_accuracy whole.log)" 'BEGIN { exit !(found >= 0.9) }' || { cat whole.log; failed 'it has not learnt'; }
run packed.log "${train[@]}" --data set.tar.gz --num_train_epochs 3
diff <(figures whole.log) <(figures packed.log) || failed 'an archive is another set than its folders'
run parts.log "${train[@]}" --data set --num_train_epochs 3 --resume_from_checkpoint whole/checkpoint-2-*.safetensors \
  --save_strategy epoch --output_dir parts
diff <(figures whole.log | tail -n 3) <(figures parts.log) || failed 'a run that is taken up goes on otherwise'
same_end whole parts || failed 'a run that is taken up ends otherwise'
mixed=("${train[@]}" --data set --save_strategy epoch --output_dir mixed)
run mixed.log "${mixed[@]}" --model xresnet18 --num_train_epochs 1 --mixup 0.4 --label_smoothing_factor 0.1
again=(--model xresnet18 --num_train_epochs 2 --resume_from_checkpoint true)
refused 'it was saved with mixup 0.4, and this run has 0' "${mixed[@]}" "${again[@]}" --label_smoothing_factor 0.1
refused 'it was saved with label_smoothing_factor 0.1, and this run has 0' "${mixed[@]}" "${again[@]}" --mixup 0.4

run judged.log "${judge[@]}" whole --data set/test
grep -qF 'Num examples = 24' judged.log && [[ $(figures judged.log) == "$(figures whole.log | tail -n 2)" ]] ||
  { cat judged.log; failed 'a folder is judged otherwise than while training'; }
run bf16.log "${train[@]}" --data set --num_train_epochs 1 --bf16 --save_strategy epoch --output_dir bf16
run judged.log "${judge[@]}" bf16 --data set/test --bf16
[[ $(last eval_accuracy judged.log) == "$(last eval_accuracy bf16.log)" ]] ||
  { cat judged.log; failed 'a folder is judged in another precision than while training'; }
# classes COMMAND...: of images that nobody knows the classes of, a line each.
classes() { run judged.log "$@" && grep ' %)$' judged.log; }
mkdir unsorted
for image in set/test/*/*.*; do cp "$image" "unsorted/$(tr / - <<<"$image")"; done
[[ $(classes "${judge[@]}" bf16 --data unsorted) != "$(classes "${judge[@]}" bf16 --data unsorted --bf16)" ]] ||
  failed 'images of unknown classes are judged in another precision than was asked for'
mkdir photos
cp set/test/rising/0.jpg photos/b.jpg
cp set/test/falling/3.png photos/a.png
[[ $(classes "${judge[@]}" whole --data photos | sed 's/ (.*//') == $'photos/a.png: falling\nphotos/b.jpg: rising' ]] ||
  { cat judged.log; failed 'images of unknown classes are not told apart'; }
[[ $(classes "${judge[@]}" whole --data photos/b.jpg) == 'photos/b.jpg: rising ('* ]] || failed 'one image is not judged'

cp set/large.png photos/large.png
grep -q '^photos/large.png: rising (' <<<"$(classes "${judge[@]}" whole --data photos)" || failed 'an image of another size is not judged'
mkdir -p sizes/train sizes/test
cp -r set/train/rising set/train/falling sizes/train
cp set/large.png sizes/train/rising
cp -r set/test/* sizes/test
cp set/large.png sizes/test/rising
run sizes.log "${train[@]}" --data sizes --num_train_epochs 1
cp set/large.png sizes/test
run judged.log "${judge[@]}" whole --data sizes/test
grep -qF 'sizes/test: 1 images lie beside the folders of classes, and are left out' judged.log ||
  { cat judged.log; failed 'images beside the folders are left out without a word'; }
grep -qF 'Num examples = 25' judged.log

head -c 300 set/test/rising/0.jpg >photos/broken.jpg
refused 'photos/broken.jpg: cannot be read as JPEG: ' "${judge[@]}" whole --data photos
refused 'photos/none.jpg: no such image or folder' "${judge[@]}" whole --data photos/none.jpg
mkdir -p empty other/flat/ set2/train/x
refused 'empty: found no .jpg, .jpeg or .png file' "${judge[@]}" whole --data empty
cp set/test/rising/0.jpg other/flat/
refused "other: 'flat' is no class of the set: it knows falling, rising" "${judge[@]}" whole --data other
refused 'there is no model to judge; name its checkpoint (resume_from_checkpoint)' "$program" --do_train false --data photos
refused 'nowhere: no such folder or archive of images; name one by --data' "$program" --data nowhere
refused 'set2/train: found no .jpg, .jpeg or .png file in x' "$program" --data set2
refused 'expected the model resnet18, resnet34, resnet50 or xresnet18, got vgg' "${train[@]}" --data set --model vgg

if [[ -n $launcher ]]; then
  two=("$launcher" -n 2 "$program" --data set --size 16 --per_device_train_batch_size 6 --learning_rate 0.03
    --num_train_epochs 3 --save_strategy epoch)
  run two.log "${two[@]}" --output_dir two
  awk -v found="$(last eval_accuracy two.log)" 'BEGIN { exit !(found >= 0.9) }' || { cat two.log; failed 'two ranks have not learnt'; }
  run parts.log "${two[@]}" --resume_from_checkpoint two/checkpoint-2-*.safetensors --output_dir parts2
  same_end two parts2 || failed 'a run of two ranks that is taken up ends otherwise'
  run judged.log "$launcher" -n 2 "${judge[@]}" two --data set/test
  [[ $(last eval_accuracy judged.log) == "$(last eval_accuracy two.log)" ]] || { cat judged.log; failed 'two ranks judge otherwise'; }
fi
echo 'images are learnt, taken up and judged'
