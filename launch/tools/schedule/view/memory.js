// SPDX-License-Identifier: Apache-2.0
// The memory ledger: what each rank holds over one step of training. A panel for each way of sharing
// a model out, over time; below it all ranks at one moment.

const HOLDINGS = [['parameters', '#5b8def'], ['gathered for a moment', '#a9c4f7'], ['gradients', '#e8a13a'],
  ['buckets: still empty, or being sent', '#f3d9a8'], ['optimizer\'s state', '#6bb38a'], ['activations', '#b58bc0']];

class MemoryView {
  constructor(data) {
    this.data = data;
    this.stops = data.moments.length - 1;
    this.sums = data.ways.map((way) => way.ranks.map((rank) => rank.map((held) => held.reduce((a, b) => a + b))));
    this.peaks = this.sums.map((ranks) => ranks.map((sums) => Math.max(...sums)));
    // The rank that comes highest stands for its way.
    this.worst = this.peaks.map((peaks) => peaks.indexOf(Math.max(...peaks)));
    this.most = Math.max(...this.peaks.flat());
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.table()),
      html('figure', {}, this.figure, legend(...HOLDINGS.map(([name, colour]) => [colour, name])),
        html('figcaption', {}, 'Activations are measured: what the allocator had handed out besides all else, the most since the moment before. The rest is what peal plans.')),
      html('div', { class: 'prose' }, this.heading = html('h2'), this.list));
  }

  // In the middle of backward: there the ways differ most.
  get opening() { return Math.floor(this.stops * 0.7); }
  get pace() { return 1.5; }
  get framed() { return false; }

  table() {
    const cell = (text) => html('td', {}, text), { elements, world, ways } = this.data;
    const rows = ways.map((way, w) => html('tr', {}, cell(way.name), cell(way.formula), cell(sizeText(way.by_formula)), cell(sizeText(way.estimate)),
      cell(sizeText(this.peaks[w][this.worst[w]])), cell(this.data.moments[this.sums[w][this.worst[w]].indexOf(this.peaks[w][this.worst[w]])])));
    const heads = ['', 'bytes a parameter', `of ${NUMBER.format(elements)}, N = ${world}`, 'planned, the rank with most', 'most in the step, activations too', 'when'];
    return html('table', {}, html('tr', {}, ...heads.map((h) => html('th', { scope: 'col' }, h))), ...rows);
  }

  draw() {
    const { ways, moments, world } = this.data, left = 66, width = 940 / ways.length;
    this.high = 220;
    this.top = 30;
    this.floor = this.top + this.high;
    this.lower = this.floor + 74;
    this.low = 130;
    this.figure = svg('svg', { viewBox: `0 0 1010 ${this.lower + this.low + 26}`, role: 'img' });
    const y = (bytes) => this.floor - bytes / this.most * this.high;
    for (let bytes = 0; bytes <= this.most; bytes += tick(this.most / 1048576) * 1048576) {
      this.figure.append(svg('path', { class: 'axis', d: `M${left} ${round(y(bytes))}H1006` }), written(left - 6, round(y(bytes) + 4), sizeText(bytes), { class: 'soft', 'text-anchor': 'end', 'font-size': 10 }));
    }
    this.x = (w) => left + 6 + w * width;
    this.inner = width - 16;
    this.columns = ways.map((way, w) => {
      this.figure.append(written(round(this.x(w)), 16, way.name, { 'font-size': 13, 'font-weight': 600 }));
      const each = this.inner / moments.length, columns = way.ranks[this.worst[w]].map((held, m) => {
        const group = svg('g', {}, svg('title', {}, `${way.name}, ${moments[m]}: ${this.itemised(held)}`));
        this.stack(group, held, this.x(w) + m * each, Math.max(1, each - 1), this.floor, this.high);
        this.figure.append(group);
        return group;
      });
      this.figure.append(written(round(this.x(w)), this.floor + 14, 'forward', { class: 'soft', 'font-size': 10 }),
        written(round(this.x(w) + this.inner * 0.5), this.floor + 14, 'backward', { class: 'soft', 'font-size': 10 }));
      return columns;
    });
    this.heads = ways.map(() => svg('path', { class: 'playhead' }));
    this.caption = written(4, this.lower - 16, '', { 'font-size': 13, 'font-weight': 600 });
    this.now = svg('g');
    this.figure.append(...this.heads, this.caption, this.now);
    ways.forEach((way, w) => {
      for (let r = 0; r < world; ++r) this.figure.append(written(round(this.x(w) + (r + 0.5) * this.inner / world), this.lower + this.low + 14, `${r}`, { class: 'soft', 'text-anchor': 'middle', 'font-size': 10 }));
    });
    this.figure.append(written(left - 6, this.lower + this.low + 14, 'rank', { class: 'soft', 'text-anchor': 'end', 'font-size': 10 }));
  }

  stack(group, held, x, width, floor, high) {
    let at = floor;
    held.forEach((bytes, i) => {
      const height = bytes / this.most * high;
      if (bytes > 0) group.append(rectangle(round(x), round(at - height), round(width), round(height), { fill: HOLDINGS[i][1] }));
      at -= height;
    });
  }

  itemised(held) { return held.map((bytes, i) => [bytes, HOLDINGS[i][0]]).filter(([bytes]) => bytes > 0).map(([bytes, name]) => `${name} ${sizeText(bytes)}`).join(', '); }

  show(position) {
    const moment = Math.min(Math.floor(position), this.stops), { ways, moments, world } = this.data;
    if (moment === this.told) return;
    this.told = moment;
    const each = this.inner / moments.length;
    this.columns.forEach((columns, w) => {
      columns.forEach((group, m) => group.setAttribute('class', m > moment ? 'future' : ''));
      this.heads[w].setAttribute('d', `M${round(this.x(w) + (moment + 0.5) * each)} ${this.top - 6}V${this.floor}`);
    });
    this.caption.textContent = `All ranks, ${moments[moment]}`;
    this.now.replaceChildren();
    ways.forEach((way, w) => way.ranks.forEach((rank, r) => {
      const wide = this.inner / world, sum = this.sums[w][r][moment];
      this.stack(this.now, rank[moment], this.x(w) + r * wide, wide - 3, this.lower + this.low, this.low);
      if (world <= 6) this.now.append(written(round(this.x(w) + (r + 0.5) * wide - 1), round(this.lower + this.low - sum / this.most * this.low - 4), NUMBER.format(Math.round(sum / 10485.76) / 100), { class: 'soft', 'text-anchor': 'middle', 'font-size': 10 }));
    }));
    this.heading.textContent = `${moments[moment][0].toUpperCase()}${moments[moment].slice(1)}`;
    const words = ways.map((way, w) => [`${way.name}: ${sizeText(this.sums[w][this.worst[w]][moment])} on rank ${this.worst[w]}.`, `${this.itemised(way.ranks[this.worst[w]][moment])}. ${way.says}`]);
    this.list.replaceChildren(...words.map(([name, text]) => html('li', {}, html('b', {}, name), ` ${text}`)));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${moments[moment]}: ${words.map(([name]) => name).join(' ')}`);
  }

  said(position) { return this.data.moments[Math.min(Math.floor(position), this.stops)]; }
}
