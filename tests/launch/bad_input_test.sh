#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Bad input to the training program: each ends it at once, non-zero, with an error that says which file, what was
# expected and what came; a save that fails leaves the old checkpoint whole and nothing beside it.
#   bad_input_test.sh TRAINER [PEAL_RUN]     with PEAL_RUN also on two ranks
set -euo pipefail

trainer=${1:?usage: bad_input_test.sh TRAINER [PEAL_RUN]} launcher=${2-}
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
failures=0

# refused NAME PART... -- COMMAND...: it ends with another status than 0, and not by a signal, and says every part.
refused() {
  local name=$1 parts=() status=0 part
  shift
  while [[ $1 != -- ]]; do
    parts+=("$1")
    shift
  done
  shift
  "$@" >log 2>&1 </dev/null || status=$?
  if [[ $status -eq 0 || $status -ge 128 ]]; then
    echo "FAILED: $name: exit status $status"
    failures=$((failures + 1))
  fi
  for part in "${parts[@]}"; do
    if ! grep -qF -e "$part" log; then
      echo "FAILED: $name: it does not say: $part"
      failures=$((failures + 1))
      cat log
    fi
  done
}

# number N COUNT: N in COUNT big-endian bytes, as printf's escapes.
number() {
  local shift
  for ((shift = 8 * ($2 - 1); shift >= 0; shift -= 8)); do printf '\\x%02x' $((($1 >> shift) & 255)); done
}

# images COUNT and labels COUNT: IDX files of 28x28 images and of classes, all zero.
images() {
  printf "\0\0\10\3$(number "$1" 4)$(number 28 4)$(number 28 4)"
  head -c $(($1 * 784)) /dev/zero
}
labels() {
  printf "\0\0\10\1$(number "$1" 4)"
  head -c "$1" /dev/zero
}

# data_folder NAME: four good files of 40 and 20 images.
data_folder() {
  mkdir "$1"
  images 40 >"$1/train-images-idx3-ubyte"
  labels 40 >"$1/train-labels-idx1-ubyte"
  images 20 >"$1/t10k-images-idx3-ubyte"
  labels 20 >"$1/t10k-labels-idx1-ubyte"
}

# safetensors HEADER BYTES: the file with this header and so many bytes of elements.
safetensors() {
  local length=${#1} shift escapes=''
  for ((shift = 0; shift < 64; shift += 8)); do escapes+=$(printf '\\x%02x' $(((length >> shift) & 255))); done
  printf "$escapes"
  printf '%s' "$1"
  head -c "$2" /dev/zero
}

data_folder good
"$trainer" --data good >log 2>&1 || { cat log; echo 'FAILED: good data is refused'; exit 1; }

mkdir tests
cp good/t10k-* tests
"$trainer" --data good --output_dir judge --save_strategy epoch >log 2>&1
"$trainer" --do_train false --resume_from_checkpoint judge --data tests >log 2>&1 || { cat log; echo 'FAILED: a test set alone is refused'; exit 1; }

data_folder cut
gzip cut/train-images-idx3-ubyte
size=$(wc -c <cut/train-images-idx3-ubyte.gz)
truncate -s $((size - 6)) cut/train-images-idx3-ubyte.gz
refused 'a truncated .gz' 'cut/train-images-idx3-ubyte.gz: ' 'gzip stream' 'copy or download the file again' \
  -- "$trainer" --data cut

data_folder magic
printf '\x89PNG' | dd of=magic/t10k-labels-idx1-ubyte conv=notrunc status=none
refused 'a wrong magic number' 'magic/t10k-labels-idx1-ubyte: not an IDX file: expected the magic number 00 00 08 01' \
  'got 89 50 4e 47' -- "$trainer" --data magic

data_folder swapped
mv swapped/train-labels-idx1-ubyte swapped/keep
cp swapped/train-images-idx3-ubyte swapped/train-labels-idx1-ubyte
refused 'images for labels' 'train-labels-idx1-ubyte: expected 1 IDX dimensions, got 3' -- "$trainer" --data swapped

data_folder counts
labels 39 >counts/train-labels-idx1-ubyte
refused 'other counts' 'counts: images and labels differ in number' 'holds 40 images' 'holds 39 labels' \
  -- "$trainer" --data counts

refused 'no such folder' 'nowhere: no such folder; it should hold the four IDX files' -- "$trainer" --data nowhere
refused 'no such device' 'gpu' -- "$trainer" --data good --device gpu
refused 'no such checkpoint' 'nowhere' -- "$trainer" --data good --resume_from_checkpoint nowhere
refused 'no folder to save in' 'good/t10k-labels-idx1-ubyte/run' 'Not a directory' \
  -- "$trainer" --data good --output_dir good/t10k-labels-idx1-ubyte/run --save_strategy epoch
! grep -q 'first training step' log || { echo 'FAILED: it trained before it looked where to save'; failures=$((failures + 1)); }

ours='"__metadata__":{"peal.parts":"model optimizer scheduler scaler losses random","epoch":"1"}'
safetensors "{$ours,"'"model.fc1.weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},'\
'"model.head.weight":{"dtype":"F32","shape":[1],"data_offsets":[24,28]}}' 28 >other
refused 'a checkpoint of another model' "load other: part 'model': " 'BasicNet: ' 'missing: conv1.weight f32 [32, 1, 3, 3]' \
  'wrong shape: fc1.weight: expected [128, 9216], got [2, 3]' 'unexpected: head.weight f32 [1]' \
  -- "$trainer" --data good --resume_from_checkpoint other
safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' \
  12 >overlapping
refused 'overlapping offsets' "safetensors overlapping: tensor 'b': starts at 4, inside tensor 'a', which ends at 8" \
  -- "$trainer" --data good --resume_from_checkpoint overlapping
safetensors '{"a":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}' 8 >outside
refused 'offsets out of range' "safetensors outside: tensor 'a': data_offsets [4, 12] are outside the file's 8 bytes" \
  -- "$trainer" --data good --resume_from_checkpoint outside
printf '\xff\xff\xff\xff\0\0\0\0{}' >header
refused 'a header beyond the file' 'safetensors header: a header of 4294967295 bytes in a file of 10: truncated, or' \
  -- "$trainer" --data good --resume_from_checkpoint header

"$trainer" --data good --output_dir saved --save_strategy epoch >log 2>&1 || { cat log; echo 'FAILED: it cannot save'; exit 1; }
cp saved/*.safetensors whole
cp whole flipped
byte=$(tail -c 1000 whole | head -c 1 | od -An -tu1)
printf "\\x$(printf %02x $((byte ^ 16)))" | dd of=flipped bs=1 seek=$(($(wc -c <whole) - 1000)) conv=notrunc status=none
refused 'a bit that is another one' 'safetensors flipped: expected the checksum crc32:' ', which it says, got crc32:' \
  'copy it again or name another' -- "$trainer" --data good --resume_from_checkpoint flipped --num_train_epochs 2
head -c -1 whole >truncated
refused 'a byte less' 'safetensors truncated: ' 'truncated or damaged; copy it again or name another' \
  -- "$trainer" --data good --resume_from_checkpoint truncated --num_train_epochs 2

# Text in a checkpoint that is wrong: as long as the right one, so that the rest of the file stays as it is, and of a
# time before checksums.
damage() {
  LC_ALL=C sed "1s/$1/$2/; 1s/peal.checksum/none.checksum/" whole >damaged
  ! cmp -s whole damaged || { echo "FAILED: whole has no $1"; failures=$((failures + 1)); }
}
damage '"epoch":"1"' '"epoch":"x"'
refused 'a damaged epoch' "damaged: its epoch is 'x', which is no such number" \
  -- "$trainer" --data good --resume_from_checkpoint damaged --num_train_epochs 2
damage ' scaler ' ' staler '
refused 'a part of another name' "load damaged: the tensor 'scaler.scale' belongs to none of the parts" \
  -- "$trainer" --data good --resume_from_checkpoint damaged --num_train_epochs 2

# A disk that holds one checkpoint (14.5 MB) but not two: the second save fails. In namespaces of its own, so that
# the mount is gone with the shell, and no right is needed where the system lets users have such.
cat >on_a_small_disk.sh <<'EOF'
set -euo pipefail
trainer=$1
mkdir disk
mount -t tmpfs -o size=20M tmpfs disk
train=("$trainer" --data good --output_dir disk/run --save_strategy epoch)
"${train[@]}" >first 2>&1
cp disk/run/*.safetensors kept
status=0
"${train[@]}" --resume_from_checkpoint true --num_train_epochs 2 >second 2>&1 || status=$?
[[ $status -ne 0 && $status -lt 128 ]] || { echo "FAILED: a full disk: exit status $status"; exit 1; }
grep -q 'save .*disk/run/.*: writing failed after [0-9]* bytes: No space left on device; make room there' second ||
  { echo 'FAILED: a full disk: it does not say so'; cat second; exit 1; }
cmp disk/run/*.safetensors kept || { echo 'FAILED: a full disk: the old checkpoint is not whole'; exit 1; }
[[ $(ls -A disk/run | wc -l) -eq 2 ]] || { echo 'FAILED: a full disk: left behind:'; ls -A disk/run; exit 1; }
"$trainer" --data good --resume_from_checkpoint disk/run --num_train_epochs 2 >third 2>&1 ||
  { echo 'FAILED: the old checkpoint cannot be gone on from'; cat third; exit 1; }
EOF
namespaces=(unshare -m)
[[ $(id -u) -eq 0 ]] || namespaces=(unshare -rm)
if "${namespaces[@]}" sh -c 'mkdir -p probe && mount -t tmpfs -o size=1M tmpfs probe' 2>/dev/null; then
  "${namespaces[@]}" bash on_a_small_disk.sh "$trainer" || { cat first; failures=$((failures + 1)); }
else
  echo '!!!!! SKIPPED: a full disk: this system lets no test mount a small one'
fi

if [[ -n $launcher ]]; then
  refused 'other counts, two ranks' 'images and labels differ in number' -- "$launcher" -n 2 "$trainer" --data counts
  refused 'no folder to save in, two ranks' 'good/t10k-labels-idx1-ubyte/run' \
    -- "$launcher" -n 2 "$trainer" --data good --output_dir good/t10k-labels-idx1-ubyte/run --save_strategy epoch
fi
[[ $failures -eq 0 ]] || exit 1
echo 'every bad input was refused'
