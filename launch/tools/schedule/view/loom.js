// SPDX-License-Identifier: Apache-2.0
// The loom: ranks as columns, the blocks of their buffers below each other, messages as they fly.

const severalNodes = ({ nodes }) => nodes && Math.max(...nodes) > 0 && new Set(nodes).size < nodes.length;

// Where everything stands in the picture.
class LoomLayout {
  constructor(schedule, replay, small) {
    const { ranks, buffers } = schedule;
    this.schedule = schedule;
    this.pitch = Math.max(15, Math.min(150, 900 / ranks));
    this.column = this.pitch * (ranks > 16 ? 0.8 : 0.64);
    this.counts = buffers.map((_, b) => {
      let most = 0;
      for (let r = 0; r < ranks; ++r) most = Math.max(most, replay.cellCount(r, b));
      return most;
    });
    this.left = small ? 8 : 84;
    this.top = small ? 30 : schedule.circle.length ? 104 : schedule.waiting.length || severalNodes(schedule) ? 62 : 30;
    const most = Math.max(1, this.counts[IN], this.counts[OUT]);
    this.cell = Math.max(4.5, Math.min(64, 400 / most));
    this.tops = [this.top, this.top, 0, 0];
    let y = this.top + most * this.cell;
    for (const b of [2, 3]) {
      this.tops[b] = y + 16;
      if (this.counts[b]) y += 16 + this.counts[b] * this.height(b);
    }
    this.bottom = y;
    this.width = this.left + ranks * this.pitch + (small ? 4 : 12);
    this.total = y + 30;
  }

  height(buffer) {
    return buffer < 2 ? this.cell : Math.max(4, Math.min(24, 200 / this.counts[buffer]));
  }
  x(rank) { return this.left + rank * this.pitch + (this.pitch - this.column) / 2; }
  centre(rank) { return this.x(rank) + this.column / 2; }
  // `in` stands left of `out`, and is narrow.
  span(rank, buffer) {
    const x = this.x(rank), both = this.counts[IN] && this.counts[OUT];
    if (buffer === IN && both) return [x, this.column * 0.2];
    if (buffer === OUT && both) return [x + this.column * 0.26, this.column * 0.74];
    return [x, this.column];
  }
  box(rank, buffer, cell, cells = 1) {
    const [x, width] = this.span(rank, buffer), height = this.height(buffer);
    return { x, y: this.tops[buffer] + cell * height, width, height: cells * height };
  }
}

class Loom {
  // `small`: a frame of the strip.
  constructor(schedule, replay, small = false) {
    this.schedule = schedule;
    this.replay = replay;
    this.small = small;
    this.layout = new LoomLayout(schedule, replay, small);
    this.reduces = ['all_reduce', 'reduce', 'reduce_scatter', 'barrier'].includes(schedule.collective);
    const { width, total } = this.layout;
    this.svg = svg('svg', { viewBox: `0 0 ${round(width)} ${round(total)}`, role: 'img' });
    this.drawn = new Map();
    this.drawStill();
    this.flights = svg('g');
    this.svg.append(this.flights);
    this.row = -1;
  }

  drawStill() {
    const { layout, schedule } = this, { ranks } = schedule;
    if (severalNodes(schedule) && !this.small) this.drawNodes();
    for (let r = 0; r < ranks; ++r) {
      if (ranks <= 32 || r % 4 === 0) {
        this.svg.append(written(layout.centre(r), layout.top - 12, ranks > 12 ? `${r}` : `rank ${r}`,
          { 'text-anchor': 'middle', 'font-size': ranks > 32 ? 11 : 13, 'font-weight': 600 }));
      }
      this.svg.append(rectangle(layout.x(r), layout.top - 8, layout.column, 4, { fill: rankColour(r, ranks) }));
    }
    schedule.buffers.forEach((buffer, b) => this.drawBuffer(buffer, b));
  }

  drawNodes() {
    const { layout, schedule } = this, nodes = schedule.nodes;
    for (let r = 0; r < nodes.length;) {
      let end = r;
      while (end < nodes.length && nodes[end] === nodes[r]) ++end;
      const x = layout.left + r * layout.pitch + 3;
      this.svg.append(rectangle(x, layout.top - 46, (end - r) * layout.pitch - 6, layout.bottom - layout.top + 54,
        { class: 'node', rx: 8 }), written(x + 8, layout.top - 32, `node ${nodes[r]}`, { class: 'soft', 'font-size': 12 }));
      r = end;
    }
  }

  drawBuffer(buffer, b) {
    const { layout, schedule } = this, count = layout.counts[b];
    if (!count) return;
    const height = layout.height(b);
    if (!this.small) this.nameCells(buffer, b, count, height);
    for (let r = 0; r < schedule.ranks; ++r) {
      for (let c = 0; c < this.replay.cellCount(r, b); ++c) this.drawCell(r, b, c);
    }
  }

  nameCells(buffer, b, count, height) {
    const { layout } = this;
    if (b > OUT || (b === IN && !layout.counts[OUT])) {
      this.svg.append(written(layout.left - 8, layout.tops[b] - 4, buffer.name, { class: 'soft', 'text-anchor': 'end', 'font-size': 12 }));
    } else if (b === OUT && layout.counts[IN]) {
      this.svg.append(written(layout.left - 8, layout.top - 6, 'in | out', { class: 'soft', 'text-anchor': 'end', 'font-size': 12 }));
    }
    if (count <= 24 && (b !== IN || !layout.counts[OUT])) {
      for (let c = 0; c < count; ++c) {
        const range = elementRange(buffer, c);
        const said = this.replay.news ? 'has heard of' : range.length > 10 ? `block ${c}` : range;
        this.svg.append(written(layout.left - 8, layout.tops[b] + (c + 0.5) * height + 4, said,
          { class: 'soft', 'text-anchor': 'end', 'font-size': Math.min(12, height + 2) }));
      }
    }
  }

  drawCell(rank, buffer, cell) {
    const { x, y, width, height } = this.layout.box(rank, buffer, cell);
    this.svg.append(rectangle(round(x), round(y), round(width), round(height), { class: 'cell' }));
    const group = svg('g');
    this.svg.append(group);
    this.drawn.set(`${rank} ${buffer} ${cell}`, { group, key: ' false undefined' });
  }

  // Who contributed, each in a place of its own: a sum that is whole has all colours.
  stripes(held, x, y, width, height, whole = !this.reduces) {
    const { ranks } = this.schedule, all = svg('g');
    if (!held) return all;
    const who = ranksOf(held.who);
    if (whole) {
      for (const r of who) all.append(rectangle(round(x), round(y), round(width), round(height), { fill: rankColour(r, ranks) }));
      return all;
    }
    if (ranks > 16) {  // as many as a bar is long
      all.append(rectangle(round(x), round(y), round(width), round(height),
        { fill: who.length === 1 ? rankColour(who[0], ranks) : 'var(--now)', opacity: 0.25 + 0.75 * who.length / ranks }));
      return all;
    }
    for (const r of who) {
      all.append(rectangle(round(x + width * r / ranks), round(y), round(width / ranks + 0.2), round(height), { fill: rankColour(r, ranks) }));
    }
    return all;
  }

  label(held) {
    if (!held) return '';
    const ranks = rankList(held.who), { collective } = this.schedule;
    if (this.reduces && !this.replay.news) return (held.who & (held.who - 1n)) ? `\u03A3 ${ranks}` : ranks;
    if (collective === 'all_to_all') return `${ranks}\u2192${this.receiver(held)}`;
    if (collective === 'broadcast' || collective === 'scatter') return `[${held.what}]`;
    return ranks;
  }

  // Of which block it is, where in the end another one shall stand there; or that there is no such block.
  stray(rank, cell, held) {
    if (held && held.wrong) return 'mixed';
    const last = held && this.schedule.final && this.schedule.final[rank][cell];
    if (!last || held.what === last[0]) return '';
    const out = this.schedule.buffers[OUT], at = out.edges.indexOf(held.what);
    return `of ${at < 0 ? `[${held.what}]` : elementRange(out, at)}`;
  }

  // Of an all_to_all: for whom an element is.
  receiver({ who, what }) {
    const { counts, ranks } = this.schedule, row = Number(ranksOf(who)[0]) * ranks;
    if (!counts) return '?';
    let to = 0;
    for (let end = counts[row]; what >= end; end += counts[row + to]) ++to;
    return to;
  }

  fill(rank, buffer, cell, held) {
    const drawn = this.drawn.get(`${rank} ${buffer} ${cell}`);
    const known = buffer === OUT ? this.replay.right(rank, cell, held) : undefined, right = known && held !== null;
    const wrong = (held && held.wrong) || (known === false && this.row >= this.schedule.rows);
    const key = `${held ? `${held.who} ${held.what}` : ''} ${wrong} ${right}`;
    if (drawn.key === key) return;
    drawn.key = key;
    const { x, y, width, height } = this.layout.box(rank, buffer, cell);
    const parts = [this.stripes(held, x, y, width, height, buffer === IN || !this.reduces)];
    const edges = this.schedule.buffers[buffer].edges, elements = edges[cell + 1] - edges[cell];
    if (held && elements > 1 && elements <= 4 && height > 15 && buffer !== IN && !this.replay.news) {
      for (let i = 1; i < elements; ++i) {
        const at = round(y + height * i / elements);
        parts.push(svg('path', { class: 'element', d: `M${round(x)} ${at}h${round(width)}` }));
      }
    }
    if (right) parts.push(rectangle(round(x + 0.8), round(y + 0.8), round(width - 1.6), round(height - 1.6), { class: 'done' }));
    if (wrong) parts.push(rectangle(round(x + 1), round(y + 1), round(width - 2), round(height - 2), { class: 'wrong' }));
    const text = (wrong && this.stray(rank, cell, held)) || this.label(held), size = Math.min(13, height - 3);
    if (!this.small && !(buffer === IN && this.layout.counts[OUT]) && size >= 8 && text.length * size * 0.58 < width) {
      parts.push(written(round(x + width / 2), round(y + height / 2 + size * 0.36), text, { class: 'label', 'font-size': size }));
    }
    if (buffer === IN && this.layout.counts[OUT]) parts[0].setAttribute('opacity', 0.55);
    drawn.group.replaceChildren(...parts);
  }

  show(position) {
    const { schedule } = this;
    const row = Math.min(Math.floor(position), schedule.rows);
    const cells = this.replay.after(row);
    if (row !== this.row) {
      this.row = row;
      cells.forEach((buffers, r) => buffers.forEach((all, b) => all.forEach((held, c) => this.fill(r, b, c, held))));
    }
    this.flights.replaceChildren();
    this.taken = new Map();
    if (row < schedule.rows) for (const e of this.replay.rows[row]) this.fly(e, cells, position - row);
    if (schedule.waiting.length) this.drawStuck(row);
    this.svg.setAttribute('aria-label', this.spoken(row));
  }

  spoken(row) {
    const { schedule } = this;
    const moves = row < schedule.rows ? this.replay.rows[row].filter((e) => e.message).length : 0;
    const whole = this.replay.after(row).map((buffers, r) => buffers[OUT].filter((held, c) => held && this.replay.right(r, c, held)).length);
    return `${schedule.title}. ${row < schedule.rows ? `Before step ${row + 1} of ${schedule.rows}, in which ${counted(moves, 'message')} fly` : 'The end'}.` +
      (schedule.final ? ` Finished blocks by rank: ${whole.join(', ')}.` : '');
  }

  // From the middle of what is read to the middle of what is written, by an arc that leaves the
  // columns between them to be read.
  path(a, b, e) {
    const right = b.x >= a.x, far = Math.abs(e.from - e.to);
    const x0 = e.from === e.to ? a.x + a.width / 2 : right ? a.x + a.width : a.x;
    const x1 = e.from === e.to ? b.x + b.width / 2 : right ? b.x : b.x + b.width;
    const y0 = a.y + a.height / 2, y1 = b.y + b.height / 2;
    const lift = e.from === e.to ? 0 : far > 1 ? Math.min(34, 8 + 6 * far) * (right ? -1 : 1) : 0;
    return { x0, y0, x1, y1, cx: (x0 + x1) / 2, cy: (y0 + y1) / 2 + lift };
  }

  fly(e, cells, share) {
    const empty = e.kind === AWAIT || (e.fromCells === 0 && e.toCells === 0);
    const a = empty && !this.replay.news ? this.header(e.from) : this.layout.box(e.from, e.fromBuffer, e.fromCell, Math.max(1, e.fromCells));
    const b = empty && !this.replay.news ? this.header(e.to) : this.layout.box(e.to, e.toBuffer, e.toCell, Math.max(1, e.toCells));
    const { x0, y0, x1, y1, cx, cy } = this.path(a, b, e);
    const dim = this.schedule.ranks > 24 ? 0.5 : 1;
    this.flights.append(svg('path', { class: e.adds ? 'arrow' : 'arrow replaces', 'stroke-width': 1.5 * dim,
      d: `M${round(x0)} ${round(y0)}Q${round(cx)} ${round(cy)} ${round(x1)} ${round(y1)}` }));
    const angle = Math.atan2(y1 - cy, x1 - cx), size = 6 * dim;
    const corner = (turn) => `${round(x1 - size * Math.cos(angle + turn))} ${round(y1 - size * Math.sin(angle + turn))}`;
    this.flights.append(svg('path', { class: 'head', d: `M${round(x1)} ${round(y1)}L${corner(0.5)}L${corner(-0.5)}z` }));
    if (empty && !this.replay.news) return;
    const s = share * share * (3 - 2 * share), t = 0.12 + 0.76 * s;
    const x = (1 - t) * (1 - t) * x0 + 2 * t * (1 - t) * cx + t * t * x1;
    const y = (1 - t) * (1 - t) * y0 + 2 * t * (1 - t) * cy + t * t * y1;
    this.packet(e, cells, x, y);
  }

  packet(e, cells, x, y) {
    const { ranks } = this.schedule, count = Math.max(1, e.fromCells), most = Math.min(count, 8);
    const width = ranks > 24 ? 8 : e.message ? Math.max(18, this.layout.pitch * 0.3) : 12, height = Math.min(7, this.layout.cell) * (most > 3 ? 0.6 : 1) + 1;
    const left = x - width / 2, top = y - most * height / 2;
    this.flights.append(rectangle(round(left - 1), round(top - 1), round(width + 2), round(most * height + 2), { class: 'packet', rx: 2 }));
    for (let i = 0; i < most; ++i) {
      const held = cells[e.from][e.fromBuffer][e.fromCell + Math.floor(i * count / most)];
      this.flights.append(this.stripes(held, left, top + i * height, width, height - 0.6));
    }
    if (e.adds && ranks <= 24) {
      this.flights.append(svg('circle', { class: 'sign', cx: round(left + width), cy: round(top), r: 5.5 }),
        written(round(left + width), round(top + 3.8), '+', { 'text-anchor': 'middle', 'font-size': 11, 'font-weight': 700 }));
    }
  }

  header(rank) { return { x: this.layout.x(rank), y: this.layout.top - 10, width: this.layout.column, height: 8 }; }

  // Ranks that wait for ever, from the row on in which they do; in the end the circle too.
  drawStuck(row) {
    const { layout, schedule } = this;
    const waits = schedule.waiting.filter(([since]) => since <= row);
    const framed = new Set();
    for (const [, rank, peer, kind, buffer, cell, cells] of waits) {
      const sends = kind === 0 || kind === 5;
      if (!framed.has(rank)) {
        framed.add(rank);
        this.flights.append(rectangle(layout.x(rank) - 6, layout.top - 28, layout.column + 12, layout.bottom - layout.top + 34, { class: 'stuck', rx: 6 }));
        const peers = [...new Set(waits.filter((w) => w[1] === rank).map((w) => w[2]))];
        this.flights.append(written(layout.centre(rank), layout.top - 34, `waits for ${peers.join(', ')}`,
          { class: 'stuck-word', 'text-anchor': 'middle', 'font-size': 13 }));
      }
      const box = cells ? layout.box(rank, buffer, cell, cells) : this.header(rank);
      const side = peer > rank ? 1 : -1, x = side > 0 ? box.x + box.width : box.x, y = box.y + box.height / 2;
      const length = (layout.pitch - layout.column) * 0.8 * side;
      const tip = sends ? x + length : x, tail = sends ? x : x + length;
      this.flights.append(svg('path', { class: 'stuck', 'stroke-dasharray': '4 3', d: `M${round(tail)} ${round(y)}H${round(tip)}` }),
        this.stuckHead(tip, y, sends ? side : -side),
        written(round(x + length * 0.55), round(y - 6), '?', { class: 'stuck-word', 'text-anchor': 'middle', 'font-size': 15 }));
    }
    if (row >= Math.max(...schedule.waiting.map((w) => w[0]))) this.drawCircle();
  }

  stuckHead(x, y, side) {
    return svg('path', { class: 'stuck-head', d: `M${round(x)} ${round(y)}l${-7 * side} -4v8z` });
  }

  drawCircle() {
    const { layout, schedule } = this, { circle } = schedule;
    circle.forEach((rank, i) => {
      const next = circle[(i + 1) % circle.length];
      const x0 = layout.centre(rank), x1 = layout.centre(next), y = layout.top - 50;
      const lift = Math.min(34, 12 + Math.abs(next - rank) * 6) * (x1 > x0 ? 1 : 0.55), shift = x1 > x0 ? 6 : -6;
      this.flights.append(svg('path', { class: 'stuck', d: `M${round(x0 + shift)} ${y}C${round(x0 + shift)} ${round(y - lift * 1.3)} ${round(x1 - shift)} ${round(y - lift * 1.3)} ${round(x1 - shift)} ${y - 7}` }),
        svg('path', { class: 'stuck-head', d: `M${round(x1 - shift)} ${y}l-4.5 -9h9z` }));
    });
  }
}
