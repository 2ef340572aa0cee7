// SPDX-License-Identifier: Apache-2.0
// A pipeline: above, what each rank computes now, what it keeps, and what flies between them; below,
// all that it computes, from left to right.

const PASSES = [['F', 'forward', '213 60%', 68], ['B', 'backward', '140 42%', 58],
  ['I', 'backward, gradient of the input', '166 48%', 54], ['W', 'backward, gradients of the weights', '42 85%', 62]];
const [FORWARD, , INPUT] = [0, 1, 2];

class PipelineView {
  constructor(data, whole) {
    this.data = data;
    this.whole = whole;
    this.actions = data.ranks.map((mine) => mine.map(([pass, part, micro, begin, end, to, text, skips]) =>
      ({ pass, part, micro, begin, end, to, text, skips })));
    const times = this.actions.flat().flatMap((a) => [a.begin, a.end]);
    this.times = [...new Set(times)].sort((a, b) => a - b);
    this.pace = Math.max(1, this.times.length / 40);
    this.flight = data.message || whole / 60;
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title),
      html('p', { class: 'facts' }, data.note), this.verdict()),
    html('figure', {}, this.figure, this.legend()), html('div', { class: 'prose' }, html('h2', {}, 'In words'), this.list));
  }

  get stops() { return this.times.length - 1; }
  // In the middle, where all ranks have work: there it is in full swing.
  get opening() { return Math.floor(this.stops / 2); }

  colour({ pass, part }) {
    const [, , ink, light] = PASSES[pass];
    return `hsl(${ink} ${light - 24 * Math.floor(part / this.data.stages) / this.data.chunks}%)`;
  }

  verdict() {
    const { ok, why } = this.data.verdict;
    return html('div', { class: ok ? 'verdict' : 'verdict wrong' }, ok
      ? 'Proven right: each micro-batch goes through every part once, nothing before what it needs, no deadlock even without buffers, what is kept within its bound.'
      : `The verifier: ${why}.`);
  }

  legend() {
    const wanted = this.data.splits ? [0, 2, 3] : [0, 1];
    const made = legend(...wanted.map((pass) => [this.colour({ pass, part: 0 }), `${PASSES[pass][0]}: ${PASSES[pass][1]}`]), ['#b58bc0', 'kept for backward']);
    made.append(`A number is a micro-batch.${this.data.chunks > 1 ? ' Darker: a later part of the rank.' : ''}`);
    return made;
  }

  draw() {
    const { data } = this, ranks = data.stages;
    this.left = 72;
    this.across = 920;
    this.lane = Math.max(14, Math.min(30, 300 / ranks));
    this.pitch = this.lane * 1.75 + 4;
    this.lanesTop = 178;
    const total = this.lanesTop + ranks * this.pitch + 8;
    this.x = (time) => this.left + time / this.whole * this.across;
    this.figure = svg('svg', { viewBox: `0 0 1010 ${round(total)}`, role: 'img' });
    this.now = svg('g');
    this.figure.append(this.now, axis(this.x, this.whole, this.lanesTop - 8, total - 6, (at) => NUMBER.format(at)));
    this.bars = this.actions.map((mine, r) => mine.map((a) => this.drawBar(a, r)));
    this.head = svg('path', { class: 'playhead' });
    this.figure.append(this.head);
    this.bottom = total - 6;
  }

  drawBar(a, rank) {
    const y = this.lanesTop + rank * this.pitch, x0 = this.x(a.begin), x1 = this.x(a.end);
    if (a === this.actions[rank][0]) {
      this.figure.append(written(this.left - 8, y + this.lane / 2 + 4, `rank ${rank}`, { 'text-anchor': 'end', 'font-size': 12 }),
        svg('path', { class: 'kept', d: this.kept(rank, y + this.lane + 2) }));
    }
    const bar = svg('g', {}, rectangle(round(x0), round(y), round(x1 - x0), this.lane, { class: 'bar', fill: this.colour(a) }));
    bar.append(svg('title', {}, `${a.text}, ${NUMBER.format(a.begin)} to ${NUMBER.format(a.end)}`));
    if (x1 - x0 > 7 * `${a.micro}`.length + 2) {
      bar.append(svg('text', { x: round((x0 + x1) / 2), y: round(y + this.lane / 2 + 4), 'text-anchor': 'middle', 'font-size': 11, style: 'fill:#14181f' }, `${a.micro}`));
    }
    this.figure.append(bar);
    return bar;
  }

  // What is kept, as steps up and down.
  kept(rank, y) {
    const most = Math.max(1, ...this.data.stash), height = this.lane * 0.6;
    let live = 0, path = `M${this.left} ${round(y + height)}`;
    for (const a of this.actions[rank]) {
      if (a.pass === INPUT) continue;
      const at = round(this.x(a.pass === FORWARD ? a.begin : a.end));
      live += a.pass === FORWARD ? 1 : -1;
      path += `H${at}V${round(y + height * (1 - live / most))}`;
    }
    return `${path}V${round(y + height)}z`;
  }

  time(position) {
    const stop = Math.min(Math.floor(position), this.stops), share = Math.min(position, this.stops) - stop;
    return this.times[stop] + share * ((this.times[stop + 1] ?? this.times[stop]) - this.times[stop]);
  }

  // At a stop, what begins there is what is running.
  running(rank, time) { return this.actions[rank].find((a) => a.begin <= time + 1e-9 && time < a.end - 1e-9); }
  keeps(rank, time) {
    const kept = [];
    for (const a of this.actions[rank]) {
      if (a.pass === FORWARD && a.begin <= time + 1e-9) kept.push(a);
      if ((a.pass === 1 || a.pass === 3) && a.end <= time + 1e-9) kept.splice(kept.findIndex((k) => k.part === a.part && k.micro === a.micro), 1);
    }
    return kept;
  }

  show(position) {
    const time = this.time(position);
    this.at = time;
    this.head.setAttribute('d', `M${round(this.x(time))} ${this.lanesTop - 6}V${this.bottom}`);
    this.actions.forEach((mine, r) => mine.forEach((a, i) => {
      const group = this.bars[r][i], future = a.begin > time + 1e-9, now = !future && time < a.end - 1e-9;
      group.setAttribute('class', future ? 'future' : '');
      group.firstChild.setAttribute('class', now ? 'bar bright' : 'bar');
    }));
    this.now.replaceChildren();
    for (let r = 0; r < this.data.stages; ++r) this.drawRank(r, time);
    for (const [r, mine] of this.actions.entries()) for (const a of mine) this.fly(a, r, time);
    this.tell(time);
    this.figure.setAttribute('aria-label', `${this.data.title}. At ${NUMBER.format(time)}: ${this.words(time).join(' ')}`);
  }

  boxOf(rank) {
    const pitch = (this.left + this.across - 20) / this.data.stages;
    return { x: 20 + rank * pitch + pitch * 0.12, width: pitch * 0.76, pitch };
  }

  drawRank(rank, time) {
    const { x, width } = this.boxOf(rank), action = this.running(rank, time), kept = this.keeps(rank, time);
    this.now.append(written(round(x + width / 2), 16, `rank ${rank}`, { 'text-anchor': 'middle', 'font-size': 13, 'font-weight': 600 }),
      rectangle(round(x), 24, round(width), 62, action ? { class: 'box', rx: 8, style: `fill:${this.colour(action)}` } : { class: 'idle', rx: 8 }),
      svg('text', { x: round(x + width / 2), y: 61, 'text-anchor': 'middle', 'font-size': action ? 20 : 13, style: action ? 'fill:#14181f;font-weight:700' : 'fill:var(--soft)' }, action ? action.text : 'idle'));
    const each = Math.min(22, width / Math.max(1, ...this.data.stash));
    kept.forEach((a, i) => {
      this.now.append(rectangle(round(x + i * each), 104, round(each - 2), 18, { fill: '#b58bc0', rx: 3 }));
      if (each > 12) this.now.append(svg('text', { x: round(x + i * each + each / 2 - 1), y: 117, 'text-anchor': 'middle', 'font-size': 11, style: 'fill:#14181f' }, `${a.micro}`));
    });
    this.now.append(written(round(x), 99, kept.length ? `keeps ${kept.length}` : 'keeps nothing', { class: 'soft', 'font-size': 11 }));
  }

  fly(a, rank, time) {
    for (const to of [a.to, ...a.skips]) this.flyTo(a, rank, to, time, to !== a.to);
  }

  // What skips others goes below them.
  flyTo(a, rank, target, time, past) {
    if (target < 0 || time < a.end - 1e-9 || time > a.end + this.flight) return;
    const share = (time - a.end) / this.flight, from = this.boxOf(rank), to = this.boxOf(target), right = target > rank;
    const x0 = right ? from.x + from.width : from.x, x1 = right ? to.x : to.x + to.width, y = (a.pass === FORWARD ? 42 : 70) + (past ? 66 : 0);
    const x = x0 + (x1 - x0) * share;
    this.now.append(svg('path', { class: past ? 'arrow replaces' : 'arrow', d: `M${round(x0)} ${y}H${round(x1)}` }), this.tip(x1, y, right),
      rectangle(round(x - 15), y - 9, 30, 18, { rx: 4, class: 'packet', style: `fill:${this.colour(a)}` }),
      svg('text', { x: round(x), y: y + 4, 'text-anchor': 'middle', 'font-size': 11, style: 'fill:#14181f' }, a.text));
  }

  tip(x, y, right) { return svg('path', { class: 'head', d: `M${round(x)} ${y}l${right ? -7 : 7} -4v8z` }); }

  words(time) {
    return this.actions.map((mine, r) => {
      const action = this.running(r, time), kept = this.keeps(r, time).length;
      const next = mine.find((a) => a.begin > time + 1e-9);
      if (action) {
        const skips = action.skips.length ? ` and past others to ${action.skips.join(', ')}` : '';
        const sends = action.to < 0 ? '' : `; its result goes to rank ${action.to}${skips}`;
        return `Rank ${r} computes ${action.text} until ${NUMBER.format(action.end)}${sends}. It keeps ${kept}.`;
      }
      return next ? `Rank ${r} is idle: it waits until ${NUMBER.format(next.begin)} for what ${next.text} needs. It keeps ${kept}.` : `Rank ${r} has finished.`;
    });
  }

  tell(time) {
    const words = this.words(time), said = words.join();
    if (said === this.told) return;
    this.told = said;
    this.list.replaceChildren(...words.map((text, r) => {
      const action = this.running(r, time);
      return html('li', { style: `border-color:${action ? this.colour(action) : 'var(--line)'}` }, text);
    }));
  }

  said(position) { return `time ${NUMBER.format(this.time(position))} of ${NUMBER.format(this.data.makespan)}`; }
  get framed() { return false; }
}
