// SPDX-License-Identifier: Apache-2.0
// Who wins: for every size and number of ranks the algorithm that is the quickest, by its closed form
// on a machine of four numbers, which the reader turns.

const sizeText = (bytes) => {
  const [unit, by] = [['GiB', 2 ** 30], ['MiB', 2 ** 20], ['KiB', 2 ** 10], ['B', 1]].find(([, n]) => bytes >= n) || ['B', 1];
  return `${NUMBER.format(bytes / by)} ${unit}`;
};

class CompareView {
  constructor(data) {
    this.data = data;
    this.stops = data.bytes.length - 1;
    this.rank = Math.floor(data.ranks.length / 2);
    this.machine = { ...data.machine };
    // Where there is choice enough it is the others that are to be seen.
    this.leftOut = new Set(data.algorithms.flatMap((a, i) => (a.name === 'direct' && data.algorithms.length > 3 ? [i] : [])));
    this.figure = svg('svg', { role: 'img' });
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.dials()),
      html('figure', {}, this.figure, this.entries(),
        html('figcaption', {}, 'Each field: the quickest for this size and number of ranks. rounds \u00D7 latency + messages \u00D7 work + bytes sent / bandwidth + bytes added / adding, of the rank with most. Each rank is a node, and the network between them is never full: a real one is, above all where one rank sends to all' + (this.leftOut.size ? ', so direct is left out at first.' : '.'))),
      html('div', { class: 'prose' }, this.heading = html('h2'), this.list));
    this.draw();
  }

  get opening() { return Math.floor(this.stops / 2); }
  get pace() { return 2; }
  get framed() { return false; }
  colour(i) { return rankColour(i, this.data.algorithms.length); }

  // The legend, in which each can be left out, but not all.
  entries() {
    return html('div', { class: 'legend' }, ...this.data.algorithms.map((a, i) => {
      const input = html('input', { type: 'checkbox', 'data-algorithm': a.name });
      input.checked = !this.leftOut.has(i);
      input.addEventListener('change', () => {
        if (input.checked) this.leftOut.delete(i);
        else if (this.leftOut.size + 1 < this.data.algorithms.length) this.leftOut.add(i);
        else input.checked = true;
        this.draw();
        this.show(this.position);
      });
      return html('label', {}, input, ' ', html('i', { style: `background:${this.colour(i)}` }), a.name);
    }));
  }

  // What one turns: by powers of ten, around where the machine began.
  dials() {
    const box = html('div', { class: 'dials' });
    const dial = (id, said, value, text, least, most) => {
      const input = html('input', { type: 'range', id, min: least, max: most, step: 0.02, value: Math.log10(value) }), shown = html('output');
      const turn = () => {
        this.machine[id] = id === 'latency' || id === 'gap' ? 10 ** input.value : 10 ** -input.value;
        shown.textContent = text(10 ** input.value);
      };
      input.addEventListener('input', () => { turn(); this.draw(); this.show(this.position); });
      shown.textContent = text(value);  // as it is given: the slider may stand beside it
      box.append(html('label', {}, `${said} `, input, ' ', shown));
    };
    const rate = (n) => `${NUMBER.format(n / 1e9)} GB/s`;
    dial('latency', 'Latency of a message', this.data.machine.latency, (n) => duration(n * 1e9), -7, -3);
    dial('gap', 'Work for each message', this.data.machine.gap, (n) => duration(n * 1e9), -8, -4);
    dial('per_byte', 'Bandwidth', 1 / this.data.machine.per_byte, rate, 8, 12);
    dial('reduce', 'Adding', 1 / this.data.machine.reduce, rate, 8, 12);
    return box;
  }

  // Seconds; infinite where there is no plan, or it is left out.
  time(i, rank, size) {
    const algorithm = this.data.algorithms[i];
    if (this.leftOut.has(i)) return Infinity;
    const counted = algorithm.costs[rank][size];
    if (!counted) return Infinity;
    const [rounds, messages, sent, added] = counted, { latency, gap, per_byte: perByte, reduce } = this.machine;
    return rounds * latency + messages * gap + this.data.element * (sent * perByte + added * reduce);
  }
  // -1: there is none.
  best(rank, size) {
    const times = this.data.algorithms.map((_, i) => this.time(i, rank, size)), least = Math.min(...times);
    return least < Infinity ? times.indexOf(least) : -1;
  }

  draw() {
    const { ranks, bytes } = this.data;
    this.left = 84;
    this.cell = Math.min(60, 880 / bytes.length);
    this.row = Math.max(9, Math.min(30, 420 / ranks.length));
    const bottom = 14 + ranks.length * this.row;
    this.figure.setAttribute('viewBox', `0 0 ${round(this.left + bytes.length * this.cell + 20)} ${round(bottom + 30)}`);
    this.figure.replaceChildren();
    ranks.forEach((p, r) => {
      const y = 10 + (ranks.length - 1 - r) * this.row;
      if (this.row > 12 || r % 2 === 0) this.figure.append(written(this.left - 8, y + this.row / 2 + 4, `${p} ranks`, { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }));
      bytes.forEach((size, s) => {
        const best = this.best(r, s);
        const field = rectangle(round(this.left + s * this.cell), round(y), round(this.cell - 1), round(this.row - 1), { fill: best < 0 ? 'var(--line)' : this.colour(best) });
        field.append(svg('title', {}, `${p} ranks, ${sizeText(size)}: ${best < 0 ? 'none' : this.data.algorithms[best].name}`));
        field.addEventListener('click', () => { this.rank = r; this.show(this.position); });
        this.figure.append(field);
      });
    });
    const every = Math.ceil(bytes.length * 58 / 880);
    bytes.forEach((size, s) => {
      if (s % every === 0) this.figure.append(written(round(this.left + (s + 0.5) * this.cell), bottom + 16, sizeText(size), { class: 'soft', 'text-anchor': 'middle', 'font-size': 11 }));
    });
    this.frame = svg('rect', { class: 'stuck', style: 'stroke:var(--ink)' });
    this.figure.append(this.frame);
  }

  show(position) {
    this.position = position;
    const size = Math.min(Math.round(position), this.stops), { ranks, bytes, algorithms } = this.data;
    const place = { x: round(this.left + size * this.cell - 1), y: round(9 + (ranks.length - 1 - this.rank) * this.row), width: round(this.cell + 1), height: round(this.row + 1) };
    for (const [key, value] of Object.entries(place)) this.frame.setAttribute(key, value);
    this.heading.textContent = `${ranks[this.rank]} ranks, ${sizeText(bytes[size])}`;
    const times = algorithms.map((a, i) => [this.time(i, this.rank, size), a, i]).filter(([t]) => t < Infinity).sort((a, b) => a[0] - b[0]);
    const slowest = times.length ? times[times.length - 1][0] : 0;
    this.list.replaceChildren(...times.map(([time, a, i]) => {
      const [rounds, messages, sent, added] = a.costs[this.rank][size];
      return html('li', { style: `border-color:${this.colour(i)};background:linear-gradient(90deg, color-mix(in srgb, ${this.colour(i)} 35%, transparent) ${round(100 * time / slowest)}%, transparent 0)` },
        html('b', {}, duration(time * 1e9)), ` ${a.name}: ${counted(rounds, 'round')}, ${counted(messages, 'message')}, sends ${NUMBER.format(sent)}, adds ${NUMBER.format(added)} elements`);
    }));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${this.heading.textContent}: ${times.length ? `quickest is ${times[0][1].name}, in ${duration(times[0][0] * 1e9)}` : 'there is none'}.`);
  }

  said(position) { return sizeText(this.data.bytes[Math.min(Math.round(position), this.stops)]); }
}
