#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The pages of peal-schedule view, opened: no errors, the slider and the keys move the picture, and what the page has
# replayed at the end is what the verifier has. In Chromium (Debian's package chromium), and by node in a document without
# layout (view_document.js), whichever there are; without either it exits with 77, which ctest shows as skipped.
# Argument: the program.
set -euo pipefail
shopt -s inherit_errexit

program=$(realpath "${1:?usage: view_pages_test.sh PROGRAM}")
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
ways=()
[[ -z $browser ]] || ways+=(in_chromium)
if command -v node >/dev/null; then ways+=(by_node); fi
if [[ ${#ways[@]} -eq 0 ]]; then
  echo 'SKIPPED: there is neither chromium nor node here, so no page was opened'
  exit 77
fi
root=$(realpath "$(dirname "${BASH_SOURCE[0]}")/../..")
document=$root/tests/comm/view_document.js
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

# Moves the slider and presses keys, and says what has become of it; appended to a page.
cat >drive.html <<'SCRIPT'
<script>
addEventListener('load', () => {
  const slider = document.getElementById('time'), said = () => document.getElementById('now').textContent;
  const picture = () => document.querySelector('figure svg').innerHTML, seen = new Set(), words = new Set();
  for (let at = 0; at <= Number(slider.max); ++at) {
    slider.value = at;
    slider.dispatchEvent(new Event('input'));
    seen.add(picture());
    words.add(said());
  }
  const last = picture(), press = (key) => slider.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
  press('Home');
  const first = picture();
  press('ArrowRight');
  const second = picture();
  press('End');
  const different = [...document.querySelectorAll('.verdict')].map((v) => v.dataset.different);
  const labels = [...document.querySelectorAll('svg[role=img]')].every((s) => s.getAttribute('aria-label'));
  console.log(`DRIVEN stops ${Number(slider.max) + 1} pictures ${seen.size} words ${words.size} ` +
    `keys ${first !== last && second !== first && picture() === last} different ${different} labels ${labels}`);
});
</script>
SCRIPT

in_chromium() {
  timeout 60 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr --user-data-dir="$folder/profile" \
    --virtual-time-budget=3000 --dump-dom "file://$folder/driven.html"
}
by_node() { node "$document" driven.html; }

opens() { # opens PAGE PATTERN [SCRIPT]: each way the console has nothing but one line, which matches
  local page=$1 pattern=$2 way console
  cat "$page" "${3-drive.html}" >driven.html
  for way in "${ways[@]}"; do
    "$way" >"$way.html" 2>log || { echo "$page $way: exit status $?" && cat log && exit 1; }
    console=$(grep ':CONSOLE' log || true)
    [[ $(wc -l <<<"$console") -eq 1 && $console =~ $pattern ]] || {
      echo "expected '$pattern' alone on the console of $page $way, got:"
      printf '%s\n' "$console"
      exit 1
    }
  done
}
has() { # has PATTERN WHY: what has become of the page has it, each way
  local way
  for way in "${ways[@]}"; do
    grep -qE -- "$1" "$way.html" || { echo "$2 ($way)"; exit 1; }
  done
}

# Every message of a page left out, doubled, sent elsewhere or late; what its judge finds, and that it finds nothing in
# the schedule as it is. Appended to a page.
cat >break.html <<'SCRIPT'
<script>
addEventListener('load', () => {
  const whole = data.views[0], sorted = (all) => JSON.stringify(all.map(String).sort());
  const again = new Clock(programsOf(whole));
  const same = sorted(again.events) === sorted(whole.events) && again.rows === whole.rows && !again.waiting.length;
  const found = {}, next = document.getElementById('next'), click = (e) => e.dispatchEvent(new MouseEvent('click'));
  programsOf(whole).forEach((rounds, rank) => rounds.forEach((steps, round) => steps.forEach((step, at) => {
    if (!gives(step)) return;
    for (const how of Object.keys(DAMAGES)) {
      const { verdict } = broken(whole, how, rank, round, at);
      found[how] = (found[how] || 0) + (verdict.ok ? 0 : 1);
    }
  })));
  click(document.getElementById('first'));
  click(next);
  click(document.querySelector('[data-how=drop]'));
  const said = document.querySelector('.verdict.wrong').textContent;
  click(document.getElementById('whole'));
  console.log(`BROKEN clock ${same} judge ${JSON.stringify(judged(whole, programsOf(whole)))} found ${JSON.stringify(found)} ` +
    `says ${/The judge in this page: deadlock/.test(said)} whole ${document.querySelector('.verdict').dataset.different}`);
});
</script>
SCRIPT

# Who has been left out of a map, and is let in; appended to a page.
cat >let_in.html <<'SCRIPT'
<script>
addEventListener('load', () => {
  const wins = () => /quickest is direct/.test(document.querySelector('figure svg').getAttribute('aria-label'));
  const direct = document.querySelector('[data-algorithm=direct]'), before = `${direct.checked} ${wins()}`;
  direct.click();
  console.log(`LET IN ${before} ${wins()}`);
});
</script>
SCRIPT

whole='keys true different 0 labels true'
# A page whose replay is wrong is found: here what comes to a block is not added to what stands there.
"$program" view all_reduce ring --ranks 3 --output page.html
sed 's/if (!adds) return got;/return got;/' page.html >faulty.html
if cmp -s page.html faulty.html; then echo 'no fault was made'; exit 1; fi
if (opens faulty.html "$whole") >found; then echo 'a page that replays wrongly was not found'; exit 1; fi
grep -qE 'different [1-9]' found || { cat found; exit 1; }
"$program" view all_reduce ring --ranks 5 --output page.html
opens page.html "DRIVEN stops 10 pictures 10 words 10 $whole"
# 5 ranks send 8 messages each.
opens page.html 'BROKEN clock true judge .*"" found .*drop.*:40,.*double.*:40,.*redirect.*:40,.*late.*says true whole 0' break.html
"$program" view all_to_all bruck --ranks 6 --output page.html
opens page.html "$whole"
"$program" view barrier dissemination --ranks 5 --output page.html
opens page.html "$whole"
"$program" view all_reduce direct_slices --ranks 4 --output page.html
opens page.html "$whole"
"$program" view all_reduce ring --ranks 8 --beside recursive_doubling --output page.html
opens page.html 'different 0,0 labels true'
"$program" view all_reduce ring --ranks 4 --break drop --output page.html
opens page.html 'keys true different  labels true'
has 'waits for ever' 'the page does not say who waits'
has '>of \[[0-9]' 'the page does not say whose block stands in the place of another'
# What the book's pictures are of.
"$program" view all_reduce circulant --ranks 6 --output page.html
opens page.html "$whole"
"$program" view all_reduce double_tree --ranks 8 --count 2 --chunk 2 --output page.html
opens page.html "$whole"
"$program" view all_reduce hierarchical --ranks 8 --node-size 4 --output page.html
opens page.html "$whole"
"$program" view pipeline --kind gpipe --beside 1f1b --output page.html
opens page.html 'keys true different , labels true'
"$program" view trace "$root/docs/book/measured/ddp" --step 4 --output page.html
opens page.html 'keys true different  labels true'
"$program" view pipeline --kind zb-v --output page.html
opens page.html 'keys true different  labels true'
"$program" view pipeline --skip 0-2,1-3 --output page.html
opens page.html 'keys true different  labels true'
"$program" view sampler --samples 26 --ranks 3 --resumed 4 --taken 2 --output page.html
opens page.html 'DRIVEN stops 7 pictures 7 words 7 keys true different ,, labels true'
# Who skips two steps of four ranks goes past 16 samples, of which three ranks have read 12.
has 'data-lost="4" data-repeated="2"' 'the page does not say what is lost'
"$program" view memory --blocks 4 --width 32 --output page.html
opens page.html 'DRIVEN stops 10 pictures 10 words 10 keys true different  labels true'
"$program" view failure --deadline 300 --output page.html
opens page.html 'DRIVEN stops 6 pictures 6 words 6 keys true different  labels true'
for way in "${ways[@]}"; do
  [[ $(grep -oF 'data-knows="3"' "$way.html" | wc -l) -eq 6 ]] || { echo "the page does not say that all know ($way)"; exit 1; }
done
"$program" view bits --elements 5 --steps 20 --output page.html
opens page.html 'DRIVEN stops 5 pictures 5 words 5 keys true different  labels true'
"$program" view lines staged_slices --ranks 3 --output page.html
opens page.html 'keys true different  labels true'
"$program" view compare all_reduce --ranks 2-8 --bytes 1K-1M --output page.html
opens page.html 'DRIVEN stops 11 pictures 11 words 11 keys true different  labels true'
opens page.html 'LET IN false false true' let_in.html
"$program" all_reduce ring --ranks 3 --count 300 --run measured
"$program" view trace measured --output page.html
opens page.html 'keys true different  labels true'
