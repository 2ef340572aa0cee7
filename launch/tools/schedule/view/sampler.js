// SPDX-License-Identifier: Apache-2.0
// Who reads what: the samples of an epoch in their order, coloured by the rank that reads them; below,
// the batches of the ranks, step by step. The epoch is left in the middle, and other ranks go on.

const A_ROW = 40;  // cells

class SamplerView {
  constructor(data) {
    this.data = data;
    this.most = Math.max(...data.ways.flatMap((way) => way.phases.map((phase) => phase.ranks)));
    this.ways = data.ways.map((way) => this.readings(way));
    this.stops = Math.max(...this.ways.map((way) => way.steps.length));
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), ...data.ways.map((way) => this.verdict(way))),
      html('figure', {}, this.figure, this.legend()), html('div', { class: 'prose' }, this.heading = html('h2'), this.list));
  }

  // Complete at once: all that comes of it.
  get opening() { return this.stops; }
  get pace() { return 1; }
  get framed() { return false; }
  colour(rank) { return rankColour(rank, this.most); }

  // In the order in which they happen, and by step; what fills up stands behind the order.
  readings(way) {
    const steps = [], all = [];
    let filled = 0;
    way.phases.forEach((phase, p) => phase.steps.forEach((ranks) => {
      const step = steps.length, mine = [];
      ranks.forEach((batch, rank) => batch.forEach(([sample, place], i) => {
        const one = { sample, rank, step, i, phase: p, fills: place < 0, place: place < 0 ? this.data.order.length + filled++ : place };
        all.push(one);
        mine.push(one);
      }));
      steps.push(mine);
    }));
    return { way, steps, all, filled };
  }

  verdict(way) {
    const { repeated, lost, state, bytes } = way, fills = this.readings(way).filled;
    const wrong = lost.length || repeated.length > fills;
    const says = [lost.length ? `${counted(lost.length, 'sample')} never read (${lost.join(', ')})` : 'every sample read',
      repeated.length ? `${repeated.length} read twice${fills ? `, ${fills} of these readings only to fill up the last step` : ''}` : 'none twice'];
    const made = html('div', { class: wrong ? 'verdict wrong' : 'verdict', 'data-lost': lost.length, 'data-repeated': repeated.length }, html('b', {}, `${way.name}: `), `${says.join(', ')}. ${way.says} `);
    made.append(state.length ? html('code', {}, `${state.map(([name, value]) => `${name} ${value}`).join(', ')}`) : 'No state', bytes ? `: ${bytes} bytes.` : '.');
    return made;
  }

  legend() {
    const made = legend(...(this.most <= 16 ? Array.from({ length: this.most }, (_, r) => [this.colour(r), `rank ${r}`]) : []));
    made.append('Framed: read in this step. Red: read again, or never. In dashes behind the gap: samples of the head again, to fill up the last step.');
    return made;
  }

  draw() {
    const { order, batch } = this.data, longest = Math.max(...this.ways.map((way) => order.length + way.filled));
    this.left = 62;
    this.cell = Math.min(34, 930 / (Math.min(A_ROW, longest) + 0.6));
    const wide = this.stops * batch;
    this.small = Math.min(24, (930 - this.stops * 8) / Math.max(1, wide));
    this.figure = svg('svg', { role: 'img' });
    let y = 0;
    this.cells = [];
    for (const one of this.ways) y = this.drawWay(one, y);
    this.marks = svg('g');
    this.figure.append(this.marks);
    this.figure.setAttribute('viewBox', `0 0 1010 ${round(y)}`);
  }

  // Of a place in the order, its corner.
  corner(place, top) {
    const n = this.data.order.length, gap = place >= n ? 0.5 * this.cell : 0;
    return [this.left + place % A_ROW * this.cell + gap, top + Math.floor(place / A_ROW) * (this.cell + 6)];
  }
  // Of a reading, among the batches.
  seat(one, top) {
    return [this.left + one.step * (this.data.batch * this.small + 8) + one.i * this.small, top + one.rank * (this.row + 3)];
  }

  drawWay(one, y) {
    const { order } = this.data, n = order.length;
    this.row = Math.min(20, this.small, 220 / this.most);
    this.figure.append(written(4, y + 18, one.way.name, { 'font-size': 15, 'font-weight': 600 }));
    one.top = y + 30;
    one.places = [];
    const lines = Math.ceil((n + one.filled) / A_ROW);
    for (let place = 0; place < n + one.filled; ++place) {
      const fills = one.all.find((r) => r.fills && r.place === place), sample = fills ? fills.sample : order[place], [x, top] = this.corner(place, one.top);
      const shape = rectangle(round(x), round(top), round(this.cell - 2), round(this.cell - 2), { class: 'cell', rx: 3 });
      const text = this.cell > 15 ? svg('text', { x: round(x + this.cell / 2 - 1), y: round(top + this.cell / 2 + 3), 'text-anchor': 'middle', 'font-size': Math.min(11, this.cell * 0.46) }, `${sample}`) : null;
      this.figure.append(shape, ...(text ? [text] : []));
      one.places.push({ shape, text, sample, readings: one.all.filter((r) => r.place === place) });
    }
    this.figure.append(written(this.left - 8, one.top + this.cell / 2 + 3, 'order', { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }));
    one.table = one.top + lines * (this.cell + 6) + 16;
    const world = Math.max(...one.way.phases.map((phase) => phase.ranks));
    for (let rank = 0; rank < world; ++rank) {
      this.figure.append(written(this.left - 8, round(one.table + rank * (this.row + 3) + this.row * 0.72), `rank ${rank}`, { class: 'soft', 'text-anchor': 'end', 'font-size': Math.min(11, this.row) }));
    }
    for (const read of one.all) {
      const [x, top] = this.seat(read, one.table);
      const shape = rectangle(round(x), round(top), round(this.small - 1), round(this.row), { class: 'bar', fill: this.colour(read.rank), rx: 2 });
      shape.append(svg('title', {}, `step ${read.step + 1}: rank ${read.rank} reads sample ${read.sample}${read.fills ? ', to fill up' : ''}`));
      const text = this.small > 13 ? svg('text', { x: round(x + this.small / 2), y: round(top + this.row * 0.7), 'text-anchor': 'middle', 'font-size': Math.min(11, this.row * 0.6), style: 'fill:#14181f' }, `${read.sample}`) : null;
      read.group = svg('g', {}, shape, ...(text ? [text] : []));
      this.figure.append(read.group);
    }
    const bottom = one.table + world * (this.row + 3);
    const cut = this.left + this.data.taken * (this.data.batch * this.small + 8) - 4;
    this.figure.append(svg('path', { class: 'playhead', d: `M${round(cut)} ${round(one.table - 10)}V${round(bottom)}` }),
      written(round(cut + 4), round(one.table - 4), `left after ${counted(this.data.taken, 'step')}, ${counted(one.way.phases[1].ranks, 'rank')} go on`, { class: 'soft', 'font-size': 11 }));
    return bottom + 22;
  }

  show(position) {
    const step = Math.min(Math.floor(position), this.stops), end = step >= this.stops;
    if (step === this.told) return;
    this.told = step;
    this.marks.replaceChildren();
    for (const one of this.ways) this.showWay(one, step, end);
    const words = this.ways.flatMap((one) => this.words(one, step));
    this.heading.textContent = end ? 'In the end' : `Step ${step + 1}`;
    this.list.replaceChildren(...words.map(([text, look]) => html('li', look, text)));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${this.heading.textContent}: ${words.map(([text]) => text).join(' ')}`);
  }

  showWay(one, step, end) {
    const met = new Map();  // by sample, readings until now
    for (const read of one.all) {
      read.group.setAttribute('class', read.step > step ? 'future' : '');
      if (read.step > step) continue;
      const before = met.get(read.sample) || [];
      read.again = before.length > 0;
      before.push(read);
      met.set(read.sample, before);
      if (read.again) this.mark(...this.seat(read, one.table), this.small - 1, this.row, read.fills ? 'ghost' : 'wrong');
    }
    one.places.forEach(({ shape, text, sample, readings }, place) => {
      const done = readings.filter((read) => read.step <= step), last = done[done.length - 1], [x, top] = this.corner(place, one.top);
      shape.setAttribute('style', last ? `fill:${this.colour(last.rank)}` : '');
      if (text) text.setAttribute('style', last ? 'fill:#14181f' : 'fill:var(--soft)');
      if (done.some((read) => read.again && !read.fills)) this.mark(x, top, this.cell - 2, this.cell - 2, 'wrong');
      else if (last && last.fills) this.mark(x, top, this.cell - 2, this.cell - 2, 'ghost');
      else if (end && place < this.data.order.length && one.way.lost.includes(sample)) this.cross(x, top, this.cell - 2);
      else if (done.some((read) => read.step === step)) this.mark(x, top, this.cell - 2, this.cell - 2, 'done');
    });
  }

  mark(x, y, width, height, look) { this.marks.append(rectangle(round(x), round(y), round(width), round(height), { class: look, rx: 3 })); }
  cross(x, y, side) {
    this.mark(x, y, side, side, 'stuck');
    this.marks.append(svg('path', { class: 'stuck', d: `M${round(x)} ${round(y)}l${round(side)} ${round(side)}m0 ${round(-side)}l${round(-side)} ${round(side)}` }));
  }

  words(one, step) {
    const said = [[one.way.name, { style: 'border-color:transparent;font-weight:600' }]], line = (rank, text, look = {}) => said.push([text, { style: `border-color:${rank < 0 ? 'var(--line)' : this.colour(rank)}`, ...look }]);
    if (step >= one.steps.length) {
      const { lost, repeated } = one.way;
      line(-1, `After ${counted(one.steps.length, 'step')} all is read${lost.length ? ` but ${lost.join(', ')}, which nobody reads` : ''}.`, lost.length ? { class: 'stuck' } : {});
      if (repeated.length) line(-1, `Read twice: ${repeated.join(', ')}${one.filled ? `; ${one.filled} of these readings fill up the last step` : ''}.`, repeated.length > one.filled ? { class: 'stuck' } : {});
      return said;
    }
    const phase = step < this.data.taken ? one.way.phases[0] : one.way.phases[1];
    for (let rank = 0; rank < phase.ranks; ++rank) {
      const mine = one.steps[step].filter((read) => read.rank === rank), again = mine.filter((read) => read.again);
      line(rank, mine.length ? `Rank ${rank} reads ${mine.map((read) => `${read.sample}${read.fills ? ' (to fill up)' : ''}`).join(', ')}${again.length ? `; ${again.map((read) => read.sample).join(', ')} not for the first time` : ''}.` : `Rank ${rank} has nothing to read.`,
        again.some((read) => !read.fills) ? { class: 'stuck' } : {});
    }
    return said;
  }

  said(position) {
    const step = Math.floor(position);
    return step >= this.stops ? `the end, after ${counted(this.stops, 'step')}` : `step ${step + 1} of ${this.stops}`;
  }
}
