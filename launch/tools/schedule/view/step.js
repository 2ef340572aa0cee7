// SPDX-License-Identifier: Apache-2.0
// A measured step of data-parallel training: on each rank the ops of forward and backward above, its
// buckets below, and in red the time in which it does nothing but wait.

const PARTS = ['#8fb4e8', '#6fc08a', 'var(--late)', '#c9cfdb', '#d5b3e0', '#f0c36d', '#7d6fd6', '#b58bc0'];
const [FORWARD_OP, BACKWARD_OP, EXPOSED, , , , WIRE] = [0, 1, 2, 3, 4, 5, 6];

// How long the bars of these parts last, where some lie over each other once.
function covered(bars, parts) {
  let all = 0, until = -Infinity;
  for (const [, begin, end] of bars.filter((b) => parts.includes(b[0])).sort((a, b) => a[1] - b[1])) {
    all += Math.max(0, end - Math.max(begin, until));
    until = Math.max(until, end);
  }
  return all;
}

// The end of a name says most.
const tailed = (note) => (note.length > 38 ? `${note.slice(0, 14)}\u2026${note.slice(-23)}` : note);

class StepView {
  constructor(data) {
    this.data = data;
    const moments = data.ranks.flatMap((rank) => rank.lanes.flatMap((lane, l) =>
      lane.bars.filter(([part]) => l > 0 || part === EXPOSED).flatMap(([, begin, end]) => [begin, end])));
    this.times = [...new Set([0, ...moments, data.end])].filter((t) => t >= 0 && t <= data.end).sort((a, b) => a - b);
    this.whole = data.end;
    this.pace = (this.times.length - 1) / 16;
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.table()),
      html('figure', {}, this.figure, this.legend()), html('div', { class: 'prose' }, html('h2', {}, 'In words'), this.list));
  }

  get stops() { return this.times.length - 1; }
  get opening() { return Math.floor(this.stops * 0.6); }

  // How much of the time that buckets take is hidden behind the ops.
  table() {
    const cell = (text) => html('td', {}, text);
    const rows = this.data.ranks.map((rank) => {
      const buckets = rank.lanes.slice(1).flatMap((lane) => lane.bars), ops = rank.lanes[0].bars;
      const under = covered(buckets, [3, 4, 5, 6, 7]), model = covered(rank.lanes.flatMap((lane) => lane.model.map(([a, b]) => [WIRE, a, b])), [WIRE]);
      const hidden = under > 0 ? Math.max(0, 1 - rank.exposed / under) : 0;
      return html('tr', {}, cell(rank.name), cell(duration(covered(ops, [FORWARD_OP, BACKWARD_OP]))), cell(duration(under)),
        cell(duration(covered(buckets, [5]))), cell(duration(covered(buckets, [WIRE]))), cell(model ? duration(model) : '\u2013'), cell(duration(rank.exposed)), cell(`${Math.round(100 * hidden)} %`));
    });
    const heads = ['', 'computes', 'buckets under way', 'wait for the slowest rank', 'on the wire', 'by the model', 'exposed', 'hidden'];
    return html('table', {}, html('tr', {}, ...heads.map((h) => html('th', { scope: 'col' }, h))), ...rows);
  }

  legend() {
    const made = legend(...this.data.parts.map((name, i) => [PARTS[i], name]));
    if (this.data.ranks.some((rank) => rank.lanes.some((lane) => lane.model.length))) made.append('Outlined below a bucket: the wire, by the model.');
    return made;
  }

  draw() {
    const { data } = this;
    this.left = 84;
    this.across = 712;
    this.x = (at) => this.left + at / this.whole * this.across;
    let y = 34;
    this.figure = svg('svg', { role: 'img' });
    this.bars = [];
    const body = svg('g');
    for (const rank of data.ranks) {
      body.append(written(8, y + 8, rank.name, { 'font-size': 13, 'font-weight': 600 }));
      y += 14;
      rank.lanes.forEach((lane, l) => {
        const height = l === 0 ? 26 : 13;
        this.drawLane(body, lane, l, y, height);
        y += height + (l === 0 ? 6 : lane.model.length ? 9 : 4);
      });
      y += 14;
    }
    this.bottom = y;
    this.figure.setAttribute('viewBox', `0 0 1010 ${y}`);
    this.head = svg('path', { class: 'playhead' });
    this.figure.append(axis(this.x, this.whole, 22, y - 8, duration), body, this.head);
  }

  drawLane(body, lane, l, y, height) {
    body.append(written(this.left - 6, y + height / 2 + 4, lane.name, { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }),
      written(this.left + this.across + 8, y + height / 2 + 4, tailed(lane.note), { class: 'soft', 'font-size': 10 }));
    for (const bar of lane.bars) {
      const [part, begin, end, text] = bar, x0 = this.x(begin), width = Math.max(0.4, this.x(end) - x0);
      const shape = rectangle(round(x0), y, round(width), height, { fill: PARTS[part] });
      shape.append(svg('title', {}, `${lane.name}: ${text || this.data.parts[part]}, ${duration(end - begin)}`));
      body.append(shape);
      this.bars.push([shape, begin]);
      if (l === 0 && text.length * 6.2 < width) {
        body.append(svg('text', { x: round(x0 + width / 2), y: y + height / 2 + 4, 'text-anchor': 'middle', 'font-size': 11, style: 'fill:#14181f' }, text));
      }
    }
    for (const [begin, end] of lane.model) {
      body.append(rectangle(round(this.x(begin)), y + height + 1, round(Math.max(1, this.x(end) - this.x(begin))), 4, { class: 'ghost' }));
    }
  }

  time(position) {
    const stop = Math.min(Math.floor(position), this.stops), share = Math.min(position, this.stops) - stop;
    return this.times[stop] + share * ((this.times[stop + 1] ?? this.times[stop]) - this.times[stop]);
  }

  show(position) {
    const time = this.time(position), x = round(this.x(time));
    this.head.setAttribute('d', `M${x} 24V${this.bottom - 8}`);
    for (const [shape, begin] of this.bars) shape.setAttribute('class', begin > time ? 'future' : '');
    const words = this.data.ranks.map((rank) => this.words(rank, time)), said = words.join();
    this.figure.setAttribute('aria-label', `${this.data.title}. At ${duration(time)}: ${words.join(' ')}`);
    if (said === this.told) return;
    this.told = said;
    this.list.replaceChildren(...words.map((text, r) => html('li', { style: `border-color:${this.doing(this.data.ranks[r], time)}` }, text)));
  }

  at(lane, time) { return lane.bars.find(([, begin, end]) => begin <= time && time < end); }
  doing(rank, time) { const bar = this.at(rank.lanes[0], time); return bar ? PARTS[bar[0]] : 'var(--line)'; }

  words(rank, time) {
    const op = this.at(rank.lanes[0], time), under = [], done = [];
    rank.lanes.slice(1).forEach((lane, b) => {
      const bar = this.at(lane, time);
      if (bar) under.push(`bucket ${b}: ${this.data.parts[bar[0]]}`);
      else if (lane.bars.length && lane.bars.every(([, , end]) => end <= time)) done.push(b);
    });
    const name = rank.name[0].toUpperCase() + rank.name.slice(1);
    const does = !op ? 'is between two ops' : op[0] === EXPOSED ? 'does nothing but wait for gradients' : `computes ${this.data.parts[op[0]]} of ${op[3]}`;
    return `${name} ${does}. ${under.length ? `Under way: ${under.join(', ')}. ` : ''}Averaged: ${done.length} of ${rank.lanes.length - 1} buckets.`;
  }

  said(position) { return `${duration(this.time(position))} of ${duration(this.data.end)}`; }
  get framed() { return false; }
}
