// SPDX-License-Identifier: Apache-2.0
// Failure theatre: real failures, a block each, a line a rank. Time from a little before the failure, and
// from there on by powers of ten, so that a tenth of a millisecond and ten minutes are on one axis.

const SOON = 5e4;  // ns: what comes earlier is at the failure

class FailureView {
  constructor(data) {
    this.data = data;
    this.stops = data.failures.length - 1;
    this.draw();
    this.list = html('div');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.table()),
      html('figure', {}, this.figure, legend(['var(--send)', 'in a call'], ['var(--line)', 'computes'], ['var(--mark)', 'fails'], ['var(--receive)', 'knows'], ['var(--empty)', 'until torch.distributed gives up, by default']),
        html('figcaption', {}, 'Before the failure time is linear; behind it each line of the axis is ten times as late as the one before.')),
      html('div', { class: 'prose' }, this.heading = html('h2'), this.list));
  }

  get opening() { return 0; }
  get pace() { return 0.5; }
  get framed() { return false; }

  // When a rank knows; of the one that fails, and of who never writes, nothing.
  knows(rank) { return rank.find(([, what]) => what === 'learns'); }
  others(failure) { return failure.ranks.filter((_, r) => r !== this.data.victim); }

  table() {
    const cell = (text) => html('td', {}, text);
    const rows = this.data.failures.map((failure) => {
      const known = this.others(failure).map((rank) => this.knows(rank)).filter((one) => one), last = Math.max(...known.map(([at]) => at));
      return html('tr', { 'data-failure': failure.name, 'data-knows': known.length }, cell(failure.name), cell(`${known.length} of ${this.data.ranks - 1}`), cell(known.length ? duration(Math.max(0, last)) : 'never'),
        cell(known.length ? `${NUMBER.format(this.data.c10d / Math.max(last, SOON))} times later` : ''));
    });
    const heads = ['rank ' + this.data.victim, 'others that know', 'after at most', `${this.data.c10d / 6e10} minutes, torch.distributed's timeout, are`];
    return html('table', {}, html('tr', {}, ...heads.map((h) => html('th', { scope: 'col' }, h))), ...rows);
  }

  x(at) {
    const { before, zero, decade } = this.scale;
    return at <= 0 ? zero + Math.max(-1, at / before) * (zero - this.left) : zero + 14 + Math.log10(Math.max(at, SOON) / SOON) * decade;
  }

  draw() {
    const { failures, ranks, c10d, deadline } = this.data;
    this.left = 70;
    this.scale = { before: 12e6, zero: 330 };
    this.scale.decade = (985 - this.scale.zero - 14) / Math.log10(c10d / SOON);
    this.lane = 17;
    const block = ranks * this.lane + 40, total = 26 + failures.length * block;
    this.figure = svg('svg', { viewBox: `0 0 1010 ${total}`, role: 'img' });
    const shades = svg('g');
    this.figure.append(shades);
    for (let at = 1e5; at <= c10d; at *= 10) {
      this.figure.append(svg('path', { class: 'axis', d: `M${round(this.x(at))} 20V${total - 6}` }), written(round(this.x(at)), 14, duration(at), { class: 'soft', 'text-anchor': 'middle', 'font-size': 11 }));
    }
    this.figure.append(written(round(this.x(c10d)), 14, '10 min', { 'text-anchor': 'end', 'font-size': 11, 'font-weight': 600 }),
      svg('path', { class: 'ghost', d: `M${round(this.x(deadline))} 20V${total - 6}` }));
    this.frame = svg('rect', { class: 'done', x: 2, width: 1004, height: block - 6, rx: 6 });
    this.blocks = failures.map((failure, f) => {
      const top = 26 + f * block;
      this.figure.append(written(8, top + 16, `Rank ${this.data.victim}: ${failure.name}`, { 'font-size': 14, 'font-weight': 600 }));
      failure.ranks.forEach((rank, r) => this.drawRank(rank, r, top + 24 + r * this.lane, shades));
      return top;
    });
    this.figure.append(this.frame);
  }

  drawRank(rank, r, y, shades) {
    const victim = r === this.data.victim, height = this.lane - 4, end = this.data.c10d;
    this.figure.append(written(this.left - 8, y + height - 3, `rank ${r}`, { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }));
    const ends = rank.find(([, what]) => what === 'ends'), knows = this.knows(rank), fails = rank.find(([, what]) => what === 'fails');
    const over = knows ? knows[0] : ends ? ends[0] : fails ? fails[0] : end;
    const bar = (from, to, look, title) => {
      const x0 = this.x(from), shape = rectangle(round(x0), y, round(Math.max(1, this.x(to) - x0)), height, look);
      shape.append(svg('title', {}, title));
      this.figure.append(shape);
    };
    if (knows) shades.append(rectangle(round(this.x(over)), y + height / 2 - 2, round(this.x(end) - this.x(over)), 4, { fill: 'var(--empty)' }));
    bar(-this.scale.before, over, { fill: 'var(--line)' }, `rank ${r} computes`);
    let since = null;
    for (const [at, what, text] of rank) {
      if (what === 'call') since = [at, text];
      else if (since) {
        if (at > -this.scale.before && what !== 'fails') bar(since[0], at, { fill: 'var(--send)' }, `rank ${r} in ${since[1]}, ${duration(at - since[0])}`);
        if (what !== 'fails') since = null;
      }
    }
    if (fails) this.figure.append(svg('path', { d: `M${round(this.x(0) - 6)} ${y}l12 ${height}m-12 0l12 ${-height}`, style: 'stroke:var(--mark);stroke-width:3;fill:none' }));
    if (knows) {
      const x = this.x(knows[0]);
      this.figure.append(svg('path', { d: `M${round(x)} ${y - 1}l6 ${height / 2 + 1}l-6 ${height / 2 + 1}l-6 ${-height / 2 - 1}z`, style: 'fill:var(--receive);stroke:var(--ink);stroke-width:.8' }),
        written(round(x + 9), y + height - 3, victim && knows[0] < SOON ? 'its own error' : `knows after ${duration(Math.max(0, knows[0]))}`, { class: 'label', style: 'text-anchor:start', 'font-size': 11 }));
    }
  }

  show(position) {
    const at = Math.min(Math.floor(position), this.stops), failure = this.data.failures[at];
    if (at === this.told) return;
    this.told = at;
    this.frame.setAttribute('y', this.blocks[at]);
    this.heading.textContent = `Rank ${this.data.victim}: ${failure.name}`;
    const says = failure.ranks.map((rank, r) => {
      const knows = this.knows(rank), victim = r === this.data.victim;
      const said = knows ? `after ${duration(Math.max(0, knows[0]))}:` : victim ? 'says nothing more.' : 'knows nothing, and goes on.';
      return html('li', { style: `border-color:${victim ? 'var(--mark)' : knows ? 'var(--receive)' : 'var(--line)'}` }, html('b', {}, `Rank ${r} `), said, ...(knows ? [html('br'), html('code', {}, knows[2])] : []));
    });
    this.list.replaceChildren(html('p', {}, failure.says), html('ol', {}, ...says));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${failure.name}: ${failure.ranks.map((rank, r) => { const knows = this.knows(rank); return `rank ${r} ${knows ? `knows after ${duration(Math.max(0, knows[0]))}` : 'says nothing'}`; }).join(', ')}`);
  }

  said(position) { return this.data.failures[Math.min(Math.floor(position), this.stops)].name; }
}
