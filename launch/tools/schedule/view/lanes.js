// SPDX-License-Identifier: Apache-2.0
// Pictures over time: a lane a rank, time from left to right, and a line that goes along.

const NUMBER = new Intl.NumberFormat('en', { maximumSignificantDigits: 4 });
function duration(nanoseconds) {
  if (nanoseconds < 1e6) return `${NUMBER.format(nanoseconds / 1e3)} \u00B5s`;
  return nanoseconds < 1e9 ? `${NUMBER.format(nanoseconds / 1e6)} ms` : `${NUMBER.format(nanoseconds / 1e9)} s`;
}

// Of 1, 2 or 5 times a power of ten, about an eighth of the whole.
function tick(whole) {
  const power = 10 ** Math.floor(Math.log10(whole / 8));
  return [1, 2, 5].map((n) => n * power).find((step) => whole / step <= 9) || 10 * power;
}

function axis(x, whole, top, bottom, said) {
  const all = svg('g');
  for (let at = 0; at <= whole * 1.0001; at += tick(whole)) {
    all.append(svg('path', { class: 'axis', d: `M${round(x(at))} ${top}V${bottom}` }),
      written(round(x(at)), top - 5, said(at), { class: 'soft', 'text-anchor': 'middle', 'font-size': 11 }));
  }
  return all;
}

const box = (x0, x1, y, height) => `M${round(x0)} ${round(y)}H${round(x1)}v${round(height)}H${round(x0)}z`;

// The steps of a schedule in time: simulated, measured, or both on one axis. What it sends above,
// what it receives below, arithmetic between; pale where it waits.
class Timelines {
  constructor(schedule, whole) {
    const { ranks, timelines } = schedule;
    this.schedule = schedule;
    this.left = 96;
    this.across = 900;
    this.lane = ranks > 16 ? 6 : ranks > 8 ? 14 : 20;
    this.pitch = this.lane + (ranks > 16 ? 1 : 4);
    this.block = ranks * this.pitch + 26;
    const total = 30 + timelines.length * this.block;
    this.whole = whole;
    this.svg = svg('svg', { viewBox: `0 0 1020 ${total}`, role: 'img' });
    this.x = (at) => this.left + at / this.whole * this.across;
    this.svg.append(axis(this.x, this.whole, 20, total - 6, duration));
    this.svg.setAttribute('aria-label', timelines.map((t) => `${t.name} takes ${duration(t.end)}`).join(', '));
    this.bright = svg('path', { class: 'bright', fill: 'none' });
    timelines.forEach((timeline, i) => this.drawTimeline(timeline, 30 + i * this.block));
    this.svg.append(this.bright);
    this.heads = timelines.map((_, i) => {
      const head = svg('path', { class: 'playhead' });
      this.svg.append(head);
      return head;
    });
  }

  place([rank, kind], top) {
    const y = top + 16 + rank * this.pitch, third = this.lane / 3;
    if (kind === 0 || kind === 5) return [y, third, 'send'];
    if (kind === 3 || kind === REDUCE) return [y + third, third, 'local'];
    return [y + 2 * third, third, 'receive'];
  }

  drawTimeline(timeline, top) {
    const { ranks } = this.schedule;
    this.svg.append(written(this.left - 8, top + 8, timeline.name, { 'text-anchor': 'end', 'font-size': 13, 'font-weight': 600 }));
    let lanes = '';
    for (let r = 0; r < ranks; ++r) {
      const y = top + 16 + r * this.pitch;
      lanes += box(this.left, this.left + this.across, y, this.lane);
      if (ranks <= 16 || r % 8 === 0) {
        this.svg.append(written(this.left - 8, y + this.lane / 2 + 4, `rank ${r}`, { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }));
      }
    }
    this.svg.append(svg('path', { class: 'lane', d: lanes }));
    const paths = {};
    for (const bar of timeline.bars) {
      const [y, height, look] = this.place(bar, top), [, , , begin, waits, lasts] = bar, moves = begin + waits, end = moves + lasts;
      if (moves > begin) paths[`${look} waits`] = (paths[`${look} waits`] || '') + box(this.x(begin), this.x(moves), y, height);
      paths[look] = (paths[look] || '') + box(this.x(moves), this.x(end), y, height);
    }
    for (const [look, d] of Object.entries(paths)) this.svg.append(svg('path', { class: look, d }));
  }

  // Frames what belongs to these rounds of these ranks: "rank round".
  show(rounds) {
    let frames = '';
    this.schedule.timelines.forEach((timeline, i) => {
      const top = 30 + i * this.block;
      let first = Infinity;
      for (const bar of timeline.bars) {
        if (!rounds.has(`${bar[0]} ${bar[2]}`)) continue;
        const [y, height] = this.place(bar, top);
        frames += box(this.x(bar[3]), this.x(bar[3] + bar[4] + bar[5]), y, height);
        first = Math.min(first, bar[3]);
      }
      const at = this.x(first === Infinity ? timeline.end : first);
      this.heads[i].setAttribute('d', `M${round(at)} ${top + 12}V${top + this.block - 14}`);
    });
    this.bright.setAttribute('d', frames);
  }
}
