// SPDX-License-Identifier: Apache-2.0
// Cache lines: the buffers of the ranks line by line, coloured by the ranks in whose caches each is; below,
// what moves between caches in each step.

const BUFFERS = ['in', 'out', 'scratch', 'room'], KINDS = 4;

class LinesView {
  constructor(data) {
    this.data = data;
    this.stops = data.rows;
    this.touches = data.touches.map(([row, memory, line, by, writes, got, lost, holders]) => ({ row, memory, line, by, writes, got, lost, holders }));
    this.traffic = Array.from({ length: data.rows }, (_, row) => {
      const mine = this.touches.filter((t) => t.row === row);
      return { got: mine.reduce((n, t) => n + t.got, 0), lost: mine.reduce((n, t) => n + t.lost, 0), signals: data.signals.filter(([at]) => at === row).length };
    });
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.table()),
      html('figure', {}, this.figure, this.legend()), html('div', { class: 'prose' }, this.heading = html('h2'), this.list));
  }

  get opening() { return Math.min(this.stops, this.traffic.findIndex((t) => t.got > 0) + 1); }
  get pace() { return 1; }
  get framed() { return false; }
  colour(rank) { return rankColour(rank, this.data.ranks); }

  table() {
    const cell = (text) => html('td', {}, text);
    const rows = this.data.algorithms.map((a) => html('tr', {}, a.name === this.data.algorithm ? html('td', {}, html('b', {}, a.name)) : cell(a.name), cell(NUMBER.format(a.got)), cell(sizeText(64 * a.got)),
      cell(NUMBER.format(a.lost)), cell(`${a.signals}`), cell(a.us === null ? '\u2013' : duration(a.us * 1e3))));
    const heads = ['', 'lines that come from another cache', 'that is', 'lines that others lose', 'signals', this.data.ranks > this.data.cores ? `not measured: ${counted(this.data.cores, 'core')} for ${this.data.ranks} ranks` : 'measured here, a call'];
    return html('table', {}, html('tr', {}, ...heads.map((h) => html('th', { scope: 'col' }, h))), ...rows);
  }

  legend() {
    const made = legend(...Array.from({ length: this.data.ranks }, (_, r) => [this.colour(r), `in the cache of rank ${r}`]), ['var(--send)', 'lines that come'], ['var(--late)', 'lines that others lose'], ['var(--receive)', 'signals']);
    made.append('Thin frame: read in this step. Thick: written.');
    return made;
  }

  draw() {
    const { ranks, lines, rows } = this.data, left = 64, pitch = 930 / ranks, some = BUFFERS.map((_, b) => b).filter((b) => lines[b] > 0);
    this.figure = svg('svg', { role: 'img' });
    this.shapes = new Map();
    const row = Math.max(1, Math.min(16, Math.max(...lines))), side = Math.min(26, (pitch - 16) / row);
    let y = 30;
    for (const b of some) {
      this.figure.append(written(left - 10, y + side * 0.8, BUFFERS[b], { 'text-anchor': 'end', 'font-size': 12, 'font-weight': 600 }));
      for (let r = 0; r < ranks; ++r) {
        for (let line = 0; line < lines[b]; ++line) {
          const x = left + r * pitch + line % row * side, top = y + Math.floor(line / row) * side;
          const group = svg('g');
          this.figure.append(group);
          this.shapes.set(`${r * KINDS + b} ${line}`, { group, x, top, owner: r, side: side - 2 });
        }
      }
      y += Math.ceil(lines[b] / row) * side + 14;
    }
    for (let r = 0; r < ranks; ++r) this.figure.append(written(round(left + r * pitch), 16, `rank ${r}`, { 'font-size': 13, 'font-weight': 600 }), rectangle(round(left + r * pitch + 52), 7, 11, 11, { rx: 2, fill: this.colour(r) }));
    this.marks = svg('g');
    y += 26;
    const most = Math.max(1, ...this.traffic.flatMap((t) => [t.got, t.lost, t.signals])), across = 930 / rows, high = 74;
    this.figure.append(written(left, y - 8, 'What happens in each step', { 'font-size': 13, 'font-weight': 600 }), svg('path', { class: 'axis', d: `M${left} ${y + high}H${left + 930}` }));
    this.traffic.forEach((t, i) => [[t.got, 'var(--send)', 'lines come'], [t.lost, 'var(--late)', 'lines are lost'], [t.signals, 'var(--receive)', 'signals']].forEach(([n, fill, said], k) => {
      const wide = Math.min(28, across / 4), bar = rectangle(round(left + (i + 0.5) * across + (k - 1.5) * wide), round(y + high - n / most * high), round(wide - 1), round(n / most * high), { fill });
      bar.append(svg('title', {}, `step ${i + 1}: ${n} ${said}`));
      this.figure.append(bar);
      if (n > 0 && wide > 12) this.figure.append(written(round(left + (i + 0.5) * across + (k - 1) * wide - 1), round(y + high + 12), `${n}`, { class: 'soft', 'text-anchor': 'middle', 'font-size': 10 }));
    }));
    this.head = svg('rect', { class: 'done', y: y - 4, height: high + 20, width: round(across - 4), rx: 4 });
    this.headAt = (at) => left + Math.min(at, rows - 1) * across + 2;
    this.figure.append(this.head, this.marks);
    this.figure.setAttribute('viewBox', `0 0 1010 ${round(y + high + 24)}`);
  }

  show(position) {
    const row = Math.min(Math.floor(position), this.stops), { ranks } = this.data;
    if (row === this.told) return;
    this.told = row;
    const held = new Map();
    for (const t of this.touches) if (t.row <= row) held.set(`${t.memory} ${t.line}`, t.holders);
    for (const [key, { group, x, top, owner, side }] of this.shapes) {
      const holders = Array.from({ length: ranks }, (_, r) => r).filter((r) => (held.get(key) ?? 1 << owner) >> r & 1);
      group.replaceChildren(...holders.map((r, i) => rectangle(round(x + i * side / holders.length), round(top), round(side / holders.length), round(side), { fill: this.colour(r) })));
    }
    const now = this.touches.filter((t) => t.row === row);
    this.marks.replaceChildren(...now.map((t) => {
      const { x, top, side } = this.shapes.get(`${t.memory} ${t.line}`);
      return rectangle(round(x - 0.5), round(top - 0.5), round(side + 1), round(side + 1), { class: 'done', rx: 2, style: `stroke-width:${t.writes ? 3 : 1.4}` });
    }));
    this.head.setAttribute('x', round(this.headAt(row)));
    this.head.style.display = row < this.stops ? '' : 'none';
    this.heading.textContent = row < this.stops ? `Step ${row + 1}` : 'In the end';
    const words = row < this.stops ? this.words(row, now) : [[-1, 'All ranks have the sum in their out.']];
    this.list.replaceChildren(...words.map(([rank, text]) => html('li', { style: `border-color:${rank < 0 ? 'var(--line)' : this.colour(rank)}` }, text)));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${this.heading.textContent}: ${words.map(([, text]) => text).join(' ')}`);
  }

  words(row, now) {
    const all = [];
    for (let rank = 0; rank < this.data.ranks; ++rank) {
      const parts = new Map();
      for (const t of now.filter((one) => one.by === rank)) {
        const owner = Math.floor(t.memory / KINDS), key = `${t.writes ? 'writes' : 'reads'} ${owner === rank ? 'its own' : `rank ${owner}'s`} ${BUFFERS[t.memory % KINDS]}`;
        const part = parts.get(key) || { n: 0, got: 0, lost: 0 };
        parts.set(key, { n: part.n + 1, got: part.got + t.got, lost: part.lost + t.lost });
      }
      const said = [...parts].map(([key, { n, got, lost }]) => `${key}, ${counted(n, 'line')}${got ? ` (${got} must come from another cache)` : ' (all in its cache)'}${lost ? `, which others lose` : ''}`);
      const tells = this.data.signals.filter(([at, from]) => at === row && from === rank).map(([, , to]) => to);
      if (tells.length) said.push(`tells ${tells.length === 1 ? 'rank' : 'ranks'} ${tells.join(', ')} that it is so far`);
      if (said.length) all.push([rank, `Rank ${rank} ${said.join('; ')}.`]);
    }
    return all;
  }

  said(position) {
    const row = Math.floor(position);
    return row >= this.stops ? `the end, after ${counted(this.stops, 'step')}` : `step ${row + 1} of ${this.stops}`;
  }
}
