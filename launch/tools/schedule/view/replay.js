// SPDX-License-Identifier: Apache-2.0
// The replay: what stands in the blocks of a schedule is made again here, from the messages alone,
// and compared at the end with what the verifier has (schedule_json.h says how the data are written).
'use strict';

const IN = 0, OUT = 1;
const RECV_REDUCE = 2, REDUCE = 4, AWAIT = 6;

// HTML, or SVG, of these attributes and children.
function node(space, name, attributes, children) {
  const made = space ? document.createElementNS(space, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}
const html = (name, attributes = {}, ...children) => node(null, name, attributes, children);
const svg = (name, attributes = {}, ...children) =>
  node('http://www.w3.org/2000/svg', name, attributes, children);
const rectangle = (x, y, width, height, look) => svg('rect', { x, y, width, height, ...look });
const written = (x, y, text, look = {}) => svg('text', { x, y, ...look }, text);
const round = (value) => Math.round(value * 100) / 100;

// "[2–3]" of a cell.
function elementRange({ edges }, cell) {
  const [from, to] = [edges[cell], edges[cell + 1] - 1];
  return from === to ? `[${from}]` : `[${from}\u2013${to}]`;
}

const counted = (n, what) => `${n} ${what}${n === 1 ? '' : 's'}`;

// "0-2,5" of the bits 0, 1, 2 and 5.
function rankList(who) {
  const parts = [];
  for (let r = 0; who >> BigInt(r); ++r) {
    if (!(who >> BigInt(r) & 1n)) continue;
    let last = r;
    while (who >> BigInt(last + 1) & 1n) ++last;
    parts.push(last === r ? `${r}` : `${r}\u2013${last}`);
    r = last;
  }
  return parts.join(',');
}

function ranksOf(who) {
  const ranks = [];
  for (let r = 0; who >> BigInt(r); ++r) if (who >> BigInt(r) & 1n) ranks.push(r);
  return ranks;
}

// Neighbours are far apart where there are few, and no two are equal.
function rankColour(rank, ranks) {
  return `hsl(${Math.round(360 * rank / ranks + 212) % 360} 68% ${ranks > 6 && rank % 2 ? 62 : 54}%)`;
}

// The numbers of an event by name.
const event = ([row, kind, from, to, by, fromBuffer, fromCell, fromCells, toBuffer, toCell, toCells,
  fromRound, toRound]) => ({
  row, kind, from, to, by, fromBuffer, fromCell, fromCells, toBuffer, toCell, toCells, fromRound, toRound,
  adds: kind === RECV_REDUCE || kind === REDUCE,
  message: kind !== REDUCE && kind !== 3,
});

// What stands in every cell after so many rows: {who: bits of ranks, what: element, wrong}, or null.
class Replay {
  constructor(schedule) {
    this.schedule = schedule;
    this.news = schedule.collective === 'barrier';
    this.rows = Array.from({ length: schedule.rows }, () => []);
    for (const numbers of schedule.events) this.rows[numbers[0]].push(event(numbers));
    this.at = -1;
  }

  cellCount(rank, buffer) {
    const size = this.schedule.sizes[rank][buffer];
    const edges = this.schedule.buffers[buffer].edges;
    let count = 0;
    while (count + 1 < edges.length && edges[count] < size) ++count;
    return count;
  }

  start() {
    const { ranks, buffers, first } = this.schedule;
    this.cells = [];
    for (let r = 0; r < ranks; ++r) {
      this.cells.push(buffers.map((buffer, b) => Array.from({ length: this.cellCount(r, b) }, (_, c) =>
        b === IN || (this.news && b === OUT)
          ? { who: 1n << BigInt(r), what: this.news ? 0 : first[r] + buffer.edges[c], wrong: false }
          : null)));
    }
    this.at = 0;
  }

  // All of a row are concurrent: what they read is what was there before.
  step(row) {
    const writes = [];
    for (const e of this.rows[row]) {
      if (e.kind === AWAIT && !this.news) continue;
      for (let i = 0; i < Math.min(e.fromCells, e.toCells); ++i) {
        writes.push([e, i, this.cells[e.from][e.fromBuffer][e.fromCell + i] || null]);
      }
    }
    for (const [e, i, got] of writes) {
      const cells = this.cells[e.to][e.toBuffer], at = e.toCell + i;
      if (at < cells.length) cells[at] = this.put(cells[at], got, e.adds);
    }
  }

  put(there, got, adds) {
    if (this.news) return { who: there.who | got.who, what: 0, wrong: false };
    if (!adds) return got;
    if (!got || !there) return { ...(got || there || { who: 0n, what: -1 }), wrong: true };
    const wrong = there.wrong || got.wrong || there.what !== got.what || (there.who & got.who) !== 0n;
    return { who: there.who | got.who, what: there.what, wrong };
  }

  after(rows) {
    if (this.at < 0 || this.at > rows) this.start();
    while (this.at < rows) this.step(this.at++);
    return this.cells;
  }

  // Whether a cell of `out` is what the verifier ends with; nothing where it has no word on it.
  right(rank, cell, held) {
    const last = this.schedule.final && this.schedule.final[rank][cell];
    if (!last) return undefined;
    const who = BigInt('0x' + last[1]);
    return who === 0n ? held === null : held !== null && !held.wrong && held.what === last[0] && held.who === who;
  }

  // Cells of `out` that end otherwise than the verifier says, of all that it speaks of.
  differences() {
    const cells = this.after(this.schedule.rows);
    let different = 0, all = 0;
    (this.schedule.final || []).forEach((mine, rank) => mine.forEach((_, c) => {
      ++all;
      if (!this.right(rank, c, cells[rank][OUT][c])) ++different;
    }));
    return { different, all };
  }
}
