#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The checkers of the documents themselves: a small clean tree passes, and each fault planted in it alone is found.
#   checkers_test.sh DRAW_PICTURES
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
draw=$1
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree"/{source/{docs/{book,pictures},comm,launch,autograd,data,nn,examples,bench,tests,.ci},build}
cd "$tree/source"

fence='```'
printf '#!/bin/sh\n# --preset\n[ "$1" = --help ]\n' >tests/run.sh
chmod +x tests/run.sh
echo 'const char* text = std::getenv("PEAL_LOG");' >comm/log.cpp
printf '#!/bin/sh\necho "${PEAL_PROGRESS-live}"\n' >launch/start.sh
echo 'if (std::getenv("PEAL_TEST_DATA")) return;' >tests/data_test.cpp
cat >CMakePresets.json <<'TEXT'
{"version": 6,
 "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "build"}],
 "buildPresets": [{"name": "release", "configurePreset": "release"}]}
TEXT
cat >README.md <<TEXT
# A tree
See [how](docs/HACKING.md#build-it-all), \`comm/log.cpp\` and [the web](https://example.org/none).
| \`PEAL_LOG\` | x |
| \`PEAL_PROGRESS\` | x |
${fence}sh
tests/run.sh --preset release    # a comment
${fence}
TEXT
cat >docs/HACKING.md <<TEXT
# How
## Build it, all
[Up](../README.md). \`PEAL_TEST_DATA\` is for tests.
${fence}sh
cmake --preset release
${fence}
TEXT
cp README.md "$tree/README.md"
printf '# A book\n```sh\ncmake --preset release\n```\n' >docs/book/README.md
mkdir "$tree/build/bin"
printf '#!/bin/sh\necho "$1"; echo "$1" >docs/pictures/a.svg\n' >"$tree/build/bin/say"
chmod +x "$tree/build/bin/say"
cat >docs/book/01-first.md <<TEXT
${fence}sh
build/release/bin/say hello
${fence}
${fence}text
hello
${fence}
${fence}cpp
// comm/log.cpp
std::getenv("PEAL_LOG")
${fence}
TEXT
echo hello >docs/pictures/a.svg
cp docs/book/01-first.md "$tree/first.md"

failures=0
fault() {
  echo "FAILED: $1"
  failures=$((failures + 1))
}
check() {
  case $1 in
    commands | book) "$here/check_$1.sh" . "$tree/build" ;;
    *) "$here/check_$1.sh" . ;;
  esac
}
for what in commands links variables book; do
  output=$(check "$what" 2>&1) || fault "the clean tree, $what: $output"
done

# found WHAT TEXT: the checker fails, and says TEXT. Then all is put back.
found() {
  local output
  if output=$(check "$1" 2>&1); then
    fault "not found: $2"
  elif [[ $output != *"$2"* ]]; then
    fault "expected '$2', got: $output"
  fi
  cp "$tree/README.md" README.md
  cp "$tree/first.md" docs/book/01-first.md
}
# command LINE: a block of commands that is shown as well.
command() { printf '%ssh\n%s\n%s\n' "$fence" "$1" "$fence" >>README.md; }

echo '[gone](docs/GONE.md)' >>README.md
found links 'docs/GONE.md: no such file'
echo '[here](docs/HACKING.md#test-it)' >>README.md
found links 'no such heading'
echo 'and `comm/gone.h`' >>README.md
found links 'comm/gone.h'

echo '| `PEAL_GONE` | x |' >>README.md
found variables '> PEAL_GONE'
sed -i /PEAL_LOG/d README.md
found variables '< PEAL_LOG'
sed -i /PEAL_PROGRESS/d README.md
found variables '< PEAL_PROGRESS'
echo 'if (std::getenv("PEAL_TEST_NEW")) return;' >tests/new_test.cpp
found variables '< PEAL_TEST_NEW'

command 'rm -r build'
found commands 'does not know this command'
command 'launch/quickstart.sh'
found commands 'launch/quickstart.sh is not an executable file'
command 'tests/run.sh --preset tsan'
found commands 'no configure preset tsan'
command 'tests/run.sh --fast'
found commands 'knows no --fast'
command 'cmake --build --preset release --target gone'
found commands 'no target gone'
command 'launch/tools/peal-run -n 2 build/release/examples/gone'
found commands 'build/release/examples/gone is not built'
command 'ctest --test-dir build/release -L gone'
found commands 'no test'
printf '#!/bin/sh\n# --preset\nexit 1\n' >tests/run.sh
found commands '--help: exit status 1'

sed -i 's/^hello$/bye/' docs/book/01-first.md
found book 'print something else'
sed -i 's/^build.*/rm -r build/' docs/book/01-first.md
found book 'print something else'
sed -i 's/("PEAL_LOG")/("PEAL_GONE")/' docs/book/01-first.md
found book 'does not stand in comm/log.cpp'
sed -i '/^```text$/,/^```$/d' docs/book/01-first.md
found book 'expected a text block'
echo older >docs/pictures/a.svg
found book 'a.svg is not what'
sed -i 's/^hello$/bye/' docs/book/01-first.md
"$here/check_book.sh" . "$tree/build" --update >/dev/null || fault 'the book is not updated'
check book >/dev/null || fault 'the updated book is refused'
cmp docs/book/01-first.md "$tree/first.md" || fault 'the update changes more than what is printed'

"$here/check_pictures.sh" "$draw" "$tree/fresh" "$tree/none" 2>/dev/null && fault 'missing pictures are not found'
"$draw" "$tree/drawn"
"$here/check_pictures.sh" "$draw" "$tree/fresh" "$tree/drawn" || fault 'fresh pictures are refused'
touch "$tree/drawn/orphan.svg"
"$here/check_pictures.sh" "$draw" "$tree/fresh" "$tree/drawn" 2>/dev/null && fault 'a picture that nothing draws is not found'
rm "$tree/drawn/orphan.svg"
for picture in "$tree"/drawn/*.svg; do echo '<!-- older -->' >>"$picture"; done
"$here/check_pictures.sh" "$draw" "$tree/fresh" "$tree/drawn" 2>/dev/null && fault 'changed pictures are not found'

echo "$failures failures"
[[ $failures -eq 0 ]]
