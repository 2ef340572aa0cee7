// SPDX-License-Identifier: Apache-2.0
// Bits: the same numbers summed in other orders, bit by bit; below, what becomes of it when a model is
// trained: how far the losses are from those of the first way.

class BitsView {
  constructor(data) {
    this.data = data;
    this.stops = data.elements.length - 1;
    this.draw();
    this.list = html('ol');
    this.section = html('section', { class: 'view told' }, html('div', { class: 'wide' }, html('h2', {}, data.title), this.verdict = html('div', { class: 'verdict' })),
      html('figure', {}, this.figure, legend(['#8fb4e8', 'sign'], ['#f0c36d', 'exponent'], ['#6fc08a', 'fraction']),
        html('figcaption', {}, 'Dark: the bit is 1. Framed in red: not the bit of the exact sum, rounded once.')),
      html('div', { class: 'prose' }, this.heading = html('h2'), this.list),
      ...(data.algorithms[0].losses.length ? [html('figure', { class: 'wide' }, html('h3', {}, 'A model that is trained with these sums'), this.curves(),
        html('figcaption', {}, `How far its loss is from that of ${data.algorithms[0].name}, step by step, from the same weights and batches, at a learning rate as large as it bears: the first difference is of a bit, and training makes it grow.`))] : []));
  }

  get opening() { return 0; }
  get pace() { return 1; }
  get framed() { return false; }

  draw() {
    const { elements, algorithms, bits } = this.data, rows = elements[0].inputs.length + 1 + algorithms.length;
    this.left = 178;
    this.cell = Math.min(16, 520 / bits);
    this.pitch = 21;
    this.figure = svg('svg', { viewBox: `0 0 1010 ${rows * this.pitch + 48}`, role: 'img' });
    const names = [...elements[0].inputs.map((_, r) => `rank ${r}`), 'exact, rounded once', ...algorithms.map((a) => a.name)];
    this.rows = names.map((name, i) => {
      const y = 8 + i * this.pitch + (i >= elements[0].inputs.length ? 12 : 0) + (i > elements[0].inputs.length ? 12 : 0);
      const squares = Array.from({ length: bits }, (_, b) => rectangle(round(this.left + b * this.cell + (b > 0 ? 4 : 0) + (b > this.data.exponent ? 4 : 0)), y, round(this.cell - 1.5), 15, { rx: 2 }));
      const value = written(round(this.left + bits * this.cell + 18), y + 12, '', { 'font-size': 12 }), apart = written(1000, y + 12, '', { 'font-size': 12, 'text-anchor': 'end' });
      this.figure.append(written(this.left - 8, y + 12, name, { 'text-anchor': 'end', 'font-size': 12, ...(i < elements[0].inputs.length ? { class: 'soft' } : {}) }), ...squares, value, apart);
      return { squares, value, apart };
    });
  }

  fill({ squares, value, apart }, [text, word], exact, said) {
    const { bits, exponent } = this.data;
    squares.forEach((square, b) => {
      const on = word >>> (bits - 1 - b) & 1, wrong = exact !== null && (exact >>> (bits - 1 - b) & 1) !== on;
      const colour = b === 0 ? '#8fb4e8' : b <= exponent ? '#f0c36d' : '#6fc08a';
      square.setAttribute('style', `fill:${colour};fill-opacity:${on ? 1 : 0.22};stroke:${wrong ? 'var(--mark)' : 'none'};stroke-width:2`);
    });
    value.textContent = text;
    apart.textContent = said;
    apart.setAttribute('class', said && said !== 'exact' ? 'stuck-word' : 'soft');
  }

  apart(n) { return n === 0 ? 'exact' : n > 99999 ? 'no digit is right' : `${NUMBER.format(n)} ulp${n === 1 ? '' : 's'} off`; }

  show(position) {
    const at = Math.min(Math.floor(position), this.stops), { elements, algorithms } = this.data, element = elements[at], inputs = element.inputs.length;
    if (at === this.told) return;
    this.told = at;
    element.inputs.forEach((one, r) => this.fill(this.rows[r], one, null, ''));
    this.fill(this.rows[inputs], element.exact, null, '');
    algorithms.forEach((a, i) => this.fill(this.rows[inputs + 1 + i], a.sums[at], element.exact[1], this.apart(a.sums[at][2])));
    const results = new Set(algorithms.map((a) => a.sums[at][1]));
    this.verdict.textContent = `Element ${at}: ${counted(algorithms.length, 'way')} to add the same ${inputs} numbers give ${counted(results.size, 'result')}${results.size > 1 ? `; ${algorithms.filter((a) => a.sums[at][2] === 0).length} of them the sum that one rounding would give` : ''}. On every rank each has the same bits, and each has them again the next time.`;
    this.verdict.dataset.results = results.size;
    this.heading.textContent = `Element ${at}: who is added to whom`;
    this.list.replaceChildren(...algorithms.map((a) => html('li', { style: `border-color:${a.sums[at][2] ? 'var(--mark)' : 'var(--good)'}` }, html('b', {}, `${a.name} `),
      html('code', {}, a.sums[at][3].replace(/^\((.*)\)$/, '$1') || 'from rank 0 to the last'), ` = ${a.sums[at][0]}, ${this.apart(a.sums[at][2])}`)));
    this.figure.setAttribute('aria-label', `${this.data.title}. ${this.verdict.textContent}`);
  }

  // By powers of ten; what is equal lies on the floor.
  curves() {
    const { algorithms } = this.data, steps = algorithms[0].losses.length, first = algorithms[0].losses;
    const left = 84, across = 700, high = 190, x = (s) => left + s / Math.max(1, steps - 1) * across;
    const far = algorithms.map((a) => a.losses.map((loss, s) => Math.abs(loss - first[s])));
    const some = far.flat().filter((d) => d > 0), least = Math.floor(Math.log10(Math.min(1e-8, ...some))), most = Math.max(least + 1, Math.ceil(Math.log10(Math.max(1e-7, ...some))));
    const floor = 16 + high, y = (d) => d > 0 ? floor - 14 - (Math.log10(d) - least) / (most - least) * (high - 20) : floor;
    const figure = svg('svg', { viewBox: `0 0 1010 ${floor + 34}`, role: 'img', 'aria-label': algorithms.map((a) => `${a.name}: ${a.differs < 0 ? 'the same losses' : `differs from step ${a.differs} on`}`).join('; ') });
    for (let p = least; p <= most; ++p) figure.append(svg('path', { class: 'axis', d: `M${left} ${round(y(10 ** p))}H${left + across}` }), written(left - 6, round(y(10 ** p) + 4), `1e${p}`, { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }));
    figure.append(written(left - 6, floor + 4, 'equal', { class: 'soft', 'text-anchor': 'end', 'font-size': 11 }), written(left + across / 2, floor + 26, 'step of training', { class: 'soft', 'text-anchor': 'middle', 'font-size': 11 }));
    for (let s = 0; s < steps; s += tick(steps)) figure.append(written(round(x(s)), floor + 14, `${s}`, { class: 'soft', 'text-anchor': 'middle', 'font-size': 11 }));
    algorithms.forEach((a, i) => {
      const colour = rankColour(i, algorithms.length);
      figure.append(svg('path', { d: far[i].map((d, s) => `${s ? 'L' : 'M'}${round(x(s))} ${round(y(d))}`).join(''), style: `fill:none;stroke:${colour};stroke-width:2` }));
      if (a.differs >= 0) figure.append(svg('circle', { cx: round(x(a.differs)), cy: round(y(far[i][a.differs])), r: 4, style: `fill:${colour};stroke:var(--ink);stroke-width:.8` }));
      figure.append(rectangle(left + across + 14, 10 + i * 17, 11, 11, { rx: 2, fill: colour }),
        written(left + across + 30, 20 + i * 17, `${a.name}${i ? a.differs < 0 ? ': never' : `: from step ${a.differs}` : ''}`, { 'font-size': 11 }));
    });
    figure.setAttribute('viewBox', `0 0 1010 ${Math.max(floor + 34, 20 + algorithms.length * 17)}`);
    return figure;
  }

  said(position) { return `element ${Math.min(Math.floor(position), this.stops)} of ${this.stops + 1}`; }
}
