// SPDX-License-Identifier: Apache-2.0
// Break it: one message of a schedule is left out, doubled, sent elsewhere or after the next round, and
// a second judge says what comes of it. It shares nothing with the verifier but the rules: sends wait
// for their receives, messages between two ranks match in order, a round ends when all of it has.

const SEND = 0, RECV = 1, SIGNAL = 5;
const meets = (step) => step.kind !== 3 && step.kind !== REDUCE;
const gives = (step) => step.kind === SEND || step.kind === SIGNAL;

// By rank and round: the steps that the events and what waits have come from, in their order.
function programsOf(schedule) {
  const programs = Array.from({ length: schedule.ranks }, () => []);
  const put = (rank, round, step) => {
    while (programs[rank].length <= round) programs[rank].push([]);
    programs[rank][round].push(step);
  };
  for (const e of schedule.events.map(event)) {
    const src = [e.fromBuffer, e.fromCell, e.fromCells], dst = [e.toBuffer, e.toCell, e.toCells];
    if (!e.message) {
      put(e.by, e.fromRound, { kind: e.kind, from: e.from, to: e.to, src, dst });
    } else {
      put(e.from, e.fromRound, { kind: e.kind === AWAIT ? SIGNAL : SEND, peer: e.to, src });
      put(e.to, e.toRound, { kind: e.kind, peer: e.from, dst });
    }
  }
  return programs;
}

// All ranks run: what happens in which row, and what never does. As comm/draw/rows.cpp.
class Clock {
  constructor(programs) {
    this.programs = programs;
    this.ranks = programs.map(() => ({ round: 0, begin: 0, end: 0, open: 0 }));
    this.channels = new Map();
    this.events = [];
    this.waiting = [];
    this.ready = programs.map((_, rank) => rank);
    while (this.ready.length) this.begin(this.ready.pop());
    for (const { sends, recvs } of this.channels.values()) {
      for (const [rank, step, round] of [...sends, ...recvs]) {
        const [buffer, cell, cells] = step.src || step.dst;
        this.waiting.push([this.ranks[rank].begin, rank, step.peer, step.kind, buffer, cell, cells, round]);
      }
    }
    this.waiting.sort((a, b) => a[1] - b[1]);
    this.events.sort((a, b) => a[0] - b[0]);
    this.rows = 1 + Math.max(-1, ...this.events.map((e) => e[0]), ...this.waiting.map((w) => w[0]));
  }

  begin(me) {
    const rank = this.ranks[me], rounds = this.programs[me];
    for (; rank.round < rounds.length; this.next(rank)) {
      rank.open = rounds[rank.round].filter(meets).length;
      const waits = rank.open > 0, now = rank.round;
      for (const step of rounds[now]) {
        if (meets(step)) this.post(me, step, now);
        else this.note([rank.begin, step.kind, step.from, step.to, me, ...step.src, ...step.dst, now, now], rank);
      }
      if (waits) return;
    }
  }

  next(rank) {
    ++rank.round;
    rank.begin = rank.end = rank.end + 1;
  }

  note(numbers, ...ranks) {
    this.events.push(numbers);
    for (const rank of ranks) rank.end = Math.max(rank.end, numbers[0]);
  }

  post(me, step, round) {
    const key = gives(step) ? `${me} ${step.peer}` : `${step.peer} ${me}`;
    if (!this.channels.has(key)) this.channels.set(key, { sends: [], recvs: [] });
    const { sends, recvs } = this.channels.get(key);
    (gives(step) ? sends : recvs).push([me, step, round]);
    if (!sends.length || !recvs.length) return;
    const [from, send, sent] = sends.shift(), [to, recv, received] = recvs.shift();
    const one = this.ranks[from], other = this.ranks[to];
    this.note([Math.max(one.begin, other.begin), recv.kind, from, to, from, ...send.src, ...recv.dst, sent, received], one, other);
    for (const side of [from, to]) {
      if (--this.ranks[side].open > 0) continue;
      this.next(this.ranks[side]);
      this.ready.push(side);
    }
  }
}

// Each waits for the next, and the last for the first; empty where there is none.
function circleOf(waiting) {
  const peers = new Map();
  for (const [, rank, peer, kind] of waiting) if (kind !== SIGNAL) peers.set(rank, [...(peers.get(rank) || []), peer]);
  const walk = (path, seen) => {
    for (const next of peers.get(path[path.length - 1]) || []) {
      if (next === path[0]) return path;
      if (seen.has(next)) continue;
      seen.add(next);
      const found = walk([...path, next], seen);
      if (found) return found;
    }
    return null;
  };
  for (const rank of [...peers.keys()].sort((a, b) => a - b)) {
    const found = walk([rank], new Set([rank]));
    if (found) return found;
  }
  return [];
}

const DAMAGES = {
  drop: ['Leave it out', 'is left out', (rounds, round, at) => rounds[round].splice(at, 1)],
  double: ['Send it twice', 'is sent twice', (rounds, round, at) => rounds.splice(round, 0, [{ ...rounds[round][at] }])],
  redirect: ['Send it to another', 'goes to the next rank instead', (rounds, round, at, ranks, me) => {
    const step = rounds[round][at] = { ...rounds[round][at] };
    do step.peer = (step.peer + 1) % ranks; while (step.peer === me);
  }],
  late: ['Send it a round later', 'is sent a round later', (rounds, round, at) => {
    const [step] = rounds[round].splice(at, 1);
    if (round + 1 === rounds.length) rounds.push([]);
    rounds[round + 1].unshift(step);
  }],
};

const cellsText = (schedule, [buffer, cell, cells]) => {
  if (!cells) return 'nothing';
  const { name, edges } = schedule.buffers[buffer], last = edges[cell + cells] - 1;
  return edges[cell] === last ? `${name}[${last}]` : `${name}[${edges[cell]}..${last}]`;
};
function stepText(schedule, step) {
  switch (step.kind) {
    case SEND: return `sends ${cellsText(schedule, step.src)} to ${step.peer}`;
    case RECV: return `receives ${cellsText(schedule, step.dst)} from ${step.peer}`;
    case RECV_REDUCE: return `adds what comes from ${step.peer} to ${cellsText(schedule, step.dst)}`;
    case SIGNAL: return `signals ${step.peer}`;
    case AWAIT: return `awaits ${step.peer}`;
    default: return `${step.kind === REDUCE ? 'adds' : 'copies'} ${cellsText(schedule, step.src)} to ${cellsText(schedule, step.dst)}`;
  }
}

// Two steps of a round that touch the same cells, unless both only read them; null where there are none.
function race(schedule, programs) {
  const touched = (step, rank) => [
    step.src && { owner: step.from ?? rank, span: step.src, writes: false }, step.dst && { owner: step.to ?? rank, span: step.dst, writes: true }].filter((t) => t && t.span[2]);
  for (const [rank, rounds] of programs.entries()) {
    for (const [number, steps] of rounds.entries()) {
      for (let i = 0; i < steps.length; ++i) {
        for (const a of touched(steps[i], rank)) {
          for (const b of steps.slice(i + 1).flatMap((s) => touched(s, rank))) {
            const over = a.owner === b.owner && a.span[0] === b.span[0] && a.span[1] < b.span[1] + b.span[2] && b.span[1] < a.span[1] + a.span[2];
            if (over && (a.writes || b.writes)) return `rank ${rank}, round ${number}: two of its steps touch ${cellsText(schedule, b.span)} at once`;
          }
        }
      }
    }
  }
  return null;
}

// What the second judge has to say of a run; empty where it finds nothing wrong.
function judged(schedule, programs) {
  const found = race(schedule, programs);
  if (found) return found;
  for (const e of schedule.events.map(event)) {
    const count = ([buffer, cell, cells]) => schedule.buffers[buffer].edges[cell + cells] - schedule.buffers[buffer].edges[cell];
    if (e.message && e.fromCells && count([e.fromBuffer, e.fromCell, e.fromCells]) !== count([e.toBuffer, e.toCell, e.toCells])) {
      return `rank ${e.to}, round ${e.toRound}: what comes from rank ${e.from} has another size`;
    }
  }
  if (schedule.waiting.length) return 'deadlock: some messages never meet their partner';
  const replay = new Replay(schedule), cells = replay.after(schedule.rows);
  for (let rank = 0; rank < schedule.ranks; ++rank) {
    for (const [c, held] of cells[rank][OUT].entries()) {
      if (replay.right(rank, c, held) !== false) continue;
      const [element, who] = schedule.final[rank][c], wanted = BigInt('0x' + who), where = `rank ${rank} ends with a wrong ${cellsText(schedule, [OUT, c, 1])}`;
      if (!held) return `${where}: nothing was ever written there`;
      if (held.what !== element) return `${where}: it holds element ${held.what} where element ${element} should be`;
      if (wanted & ~held.who) return `${where}: the part of rank ${rankList(wanted & ~held.who)} is missing`;
      return `${where}: a part was added twice, or to nothing`;
    }
  }
  return '';
}

// The schedule with the damage done to what a rank sends in a round of its own.
function broken(schedule, how, rank, round, at) {
  const programs = programsOf(schedule), [, said, damage] = DAMAGES[how];
  const what = `rank ${rank}, round ${round}: "${stepText(schedule, programs[rank][round][at])}" ${said}`;
  damage(programs[rank], round, at, schedule.ranks, rank);
  const { events, waiting, rows } = new Clock(programs);
  const made = { ...schedule, title: `${schedule.title}, damaged`, damage: what, events, waiting, rows, circle: circleOf(waiting), timelines: [],
    prose: programs.map((rounds) => rounds.map((steps) => `${steps.map((s) => stepText(schedule, s)).join('; ') || 'does nothing'}.`)) };
  const why = judged(made, programs);
  return { ...made, judge: 'The judge in this page', verdict: { ok: !why, why } };
}
