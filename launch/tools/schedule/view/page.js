// SPDX-License-Identifier: Apache-2.0
// The page: one slider for all its views.

const data = JSON.parse(document.getElementById('data').textContent);
const $ = (id) => document.getElementById(id);

const legend = (...entries) => html('div', { class: 'legend' }, ...entries.map(([colour, said]) =>
  html('span', {}, html('i', { style: `background:${colour}` }), said)));

// A view has `stops`, the last place of the slider; `section`; `figure`, which can be saved; show(position);
// said(position), a few words; and frame(stop), a picture of it, where it has a strip.
class ScheduleView {
  constructor(schedule, whole) {
    this.schedule = schedule;
    this.stops = schedule.rows;
    this.replay = new Replay(schedule);
    this.loom = new Loom(schedule, this.replay);
    this.figure = this.loom.svg;
    this.list = html('ol');
    const told = html('div', { class: 'prose' }, html('h2', {}, 'In words'), this.list);
    const picture = html('figure', {}, this.figure, this.legend());
    this.section = html('section', { class: 'view told' },
      html('div', { class: 'wide' }, html('h2', {}, schedule.title), this.facts(), this.verdict()), picture, told);
    if (schedule.timelines.length) {
      this.lanes = new Timelines(schedule, whole);
      this.section.append(html('figure', { class: 'wide' }, this.lanes.svg,
        legend(['var(--send)', 'sends'], ['var(--receive)', 'receives'], ['var(--local)', 'adds, copies']),
        html('figcaption', {}, 'Pale: it waits for its partner. Framed: the step above.')));
    }
  }

  // Opens where there is most to see: what is stuck shows in the end.
  get opening() { return this.schedule.waiting.length ? this.stops : Math.min(1, this.stops); }

  facts() {
    const { costs, timelines, rows } = this.schedule;
    const parts = [[rows, rows === 1 ? 'step' : 'steps'], [costs.rounds, 'rounds with a message'], [costs.sent, 'elements sent'], [costs.reduced, 'added, by the rank with most']];
    const line = html('p', { class: 'facts' });
    for (const [n, said] of parts) line.append(html('b', {}, `${n}`), ` ${said}, `);
    for (const t of timelines) line.append(`${t.name} `, html('b', {}, duration(t.end)), ', ');
    line.lastChild.textContent = line.lastChild.textContent.replace(/, $/, '');
    return line;
  }

  verdict() {
    const { verdict, damage, circle, waiting } = this.schedule;
    if (!verdict) return html('p', { class: 'facts' }, 'A run that was measured: its record has the steps, and not the problem that they solve.');
    const box = html('div', { class: verdict.ok ? 'verdict' : 'verdict wrong' });
    if (damage) box.append(html('div', {}, html('b', {}, 'Damage: '), damage + '.'));
    if (!verdict.ok) {
      box.append(html('div', {}, html('b', {}, `${this.schedule.judge || 'The verifier'}: `), verdict.why + '.'));
      const stuck = [...new Set(waiting.map((w) => w[1]))].sort((a, b) => a - b);
      const { different, all } = this.replay.differences();
      if (all) box.append(html('div', {}, html('b', {}, 'In the end: '), different ? `${different} of ${all} blocks are not as they shall be, framed in dashes.` : 'all blocks are as they shall be, and yet it is wrong.'));
      if (stuck.length) box.append(html('div', {}, html('b', {}, 'Stuck: '), `${stuck.length === 1 ? 'rank' : 'ranks'} ${stuck.join(', ')}` +
        (circle.length ? `; ranks ${[...circle, circle[0]].join(' \u2192 ')} wait for each other in a circle.` : '; no circle: in the end all wait for a rank that has finished.')));
      return box;
    }
    const { different, all } = this.replay.differences();
    if (this.schedule.judge) {
      box.append(html('div', {}, `${this.schedule.judge} finds nothing wrong: this does no harm.`));
      return box;
    }
    box.append('Proven right: no deadlock even without buffers, no race, all replicas the same bits' +
      (verdict.one_tree ? ', and every element is reduced by the same tree. ' : '. ') +
      (different ? `But this page, which has replayed all messages, differs in ${different} of ${all} blocks.`
        : `This page has replayed all messages: ${counted(all, 'block')}, each as the verifier says.`));
    box.dataset.different = different;
    return box;
  }

  legend() {
    const { ranks, waiting } = this.schedule;
    const entries = ranks <= 16 ? Array.from({ length: ranks }, (_, r) => [rankColour(r, ranks), `${r}`]) : [];
    const made = legend(...entries);
    if (this.replay.news) made.prepend('A rank has a stripe of each rank that it has heard of:');
    else if (entries.length) made.prepend(this.loom.reduces ? 'A block has a stripe of each rank whose part is in it:' : 'Whose data:');
    else made.prepend(this.loom.reduces ? 'The fuller the colour, the more ranks are in it.' : 'A colour a rank.');
    made.append(html('span', {}, `Full arrow: is added. Dashed: replaces.${this.schedule.final ? ' Framed: as it shall be in the end.' : ''}`));
    if (this.schedule.final && this.replay.differences().different) {
      made.append(html('span', {}, 'Framed in red dashes: not so. A part is missing; or it is of the block that it names; or mixed: of several blocks, or of a rank twice.'));
    }
    if (waiting.length) made.append(html('span', {}, 'Red: waits for ever.'));
    return made;
  }

  // Where the reader breaks what is right, a message of the step that is shown.
  offerDamage(done) {
    this.victims = html('select', { id: 'victim', 'aria-label': 'Which message' });
    const buttons = Object.entries(DAMAGES).map(([how, [said]]) => {
      const button = html('button', { type: 'button', 'data-how': how }, said);
      button.addEventListener('click', () => {
        const e = this.sends[this.victims.selectedIndex];
        if (e) done(broken(this.schedule, how, e.from, e.fromRound, this.placeOf(e)));
      });
      return button;
    });
    this.section.append(html('div', { class: 'wide breaker' }, html('h3', {}, 'Break it'), 'Of this step, the message ', this.victims, ' ', ...buttons));
  }

  offerRepair(done) {
    const button = html('button', { type: 'button', id: 'whole' }, 'Whole again');
    button.addEventListener('click', done);
    this.section.append(html('div', { class: 'wide breaker' }, button));
  }

  // Of a message among the steps of its sender's round.
  placeOf(e) {
    return programsOf(this.schedule)[e.from][e.fromRound].findIndex((step) =>
      gives(step) && step.peer === e.to && (!step.src || (step.src[0] === e.fromBuffer && step.src[1] === e.fromCell)));
  }

  // "rank round" of all that happens in a row.
  rounds(row) {
    const rounds = new Set();
    for (const e of this.replay.rows[row] || []) {
      if (e.message) rounds.add(`${e.from} ${e.fromRound}`).add(`${e.to} ${e.toRound}`);
      else rounds.add(`${e.by} ${e.fromRound}`);
    }
    return rounds;
  }

  show(position) {
    const row = Math.min(Math.floor(position), this.stops);
    this.loom.show(Math.min(position, this.stops));
    if (row === this.told) return;
    this.told = row;
    const rounds = this.rounds(row);
    if (this.lanes) this.lanes.show(rounds);
    if (this.victims) {
      this.sends = (this.replay.rows[row] || []).filter((e) => e.message);
      this.victims.replaceChildren(...this.sends.map((e) => html('option', {}, `from rank ${e.from} to rank ${e.to}`)));
      for (const button of this.section.querySelectorAll('.breaker button')) button.disabled = this.sends.length === 0;
    }
    this.list.replaceChildren(...this.sentences(row, rounds));
  }

  sentences(row, rounds) {
    const { ranks, prose, waiting } = this.schedule, all = [];
    const line = (rank, text, look = {}) => all.push(html('li', { style: `border-color:${rankColour(rank, ranks)}`, ...look }, text));
    for (const [since, rank, peer, kind, , , , round] of waiting) {
      if (since <= row) all.push(html('li', { class: 'stuck' }, `Rank ${rank} waits for ever, in its round ${round}: ${kind === 0 ? 'what it sends' : 'what shall come'} ${kind === 0 ? 'to' : 'from'} rank ${peer} never meets its partner.`));
    }
    for (let r = 0; r < ranks; ++r) {
      prose[r].forEach((text, i) => { if (rounds.has(`${r} ${i}`)) line(r, `Rank ${r}, round ${i}: ${text}`); });
    }
    if (row >= this.stops && !waiting.length) all.push(html('li', {}, 'All ranks have finished.'));
    return all;
  }

  said(position) {
    const row = Math.floor(position);
    return row >= this.stops ? `the end, after ${counted(this.stops, 'step')}` : `step ${row + 1} of ${this.stops}`;
  }

  get framed() {
    const { ranks, rows } = this.schedule;
    return ranks <= 12 && rows <= 24 && rows * ranks * this.loom.layout.counts.reduce((a, b) => a + b) <= 4000;
  }
  frame(stop) {
    const loom = new Loom(this.schedule, this.replay, true);
    loom.show(stop < this.stops ? stop + 0.5 : stop);
    return loom.svg;
  }
}

const makers = { schedule: ScheduleView, pipeline: PipelineView, step: StepView, compare: CompareView,
  sampler: SamplerView, memory: MemoryView, failure: FailureView, bits: BitsView, lines: LinesView };

class Player {
  constructor(views) {
    this.views = views;
    this.stops = Math.max(...views.map((v) => v.stops));
    this.slider = $('time');
    this.slider.max = this.stops;
    this.slider.addEventListener('input', () => { this.pause(); this.go(Number(this.slider.value)); });
    this.slider.addEventListener('keydown', (event) => this.key(event));
    document.addEventListener('keydown', (event) => {
      if (!['INPUT', 'SELECT', 'BUTTON'].includes(event.target.tagName)) this.key(event);
    });
    const click = (id, what) => $(id).addEventListener('click', () => { if (id !== 'play') this.pause(); what(); });
    click('first', () => this.go(0));
    click('back', () => this.go(Math.ceil(this.position) - 1));
    click('next', () => this.go(Math.floor(this.position) + 1));
    click('last', () => this.go(this.stops));
    click('play', () => this.playing ? this.pause() : this.play());
    addEventListener('hashchange', () => this.readAddress());
    if (!this.readAddress()) this.go(Math.max(...views.map((v) => v.opening)));
  }

  // Another view instead of the only one.
  replace(view) {
    this.pause();
    this.views[0].section.replaceWith(view.section);
    this.views = [view];
    this.stops = view.stops;
    this.slider.max = this.stops;
    this.go(view.opening);
  }

  readAddress() {
    const found = /at=([0-9.]+)/.exec(location.hash);
    if (found && Number(found[1]) !== this.position) this.go(Number(found[1]));
    return found !== null;
  }

  key(event) {
    const to = { ArrowLeft: Math.ceil(this.position) - 1, ArrowRight: Math.floor(this.position) + 1, Home: 0, End: this.stops }[event.key];
    if (to !== undefined) { this.pause(); this.go(to); } else if (event.key === ' ') { this.playing ? this.pause() : this.play(); } else return;
    event.preventDefault();
  }

  go(position) {
    this.position = Math.max(0, Math.min(this.stops, position));
    this.slider.value = this.position;
    for (const view of this.views) view.show(this.position);
    const said = this.views[0].said ? this.views.map((v) => v.said(this.position)).filter((s, i, all) => all.indexOf(s) === i).join('; ') : '';
    if ($('now').textContent !== said) $('now').textContent = said;
    this.slider.setAttribute('aria-valuetext', said);
    const stop = Math.floor(this.position);
    for (const frame of document.querySelectorAll('.frames button')) {
      if (Number(frame.dataset.stop) === stop) frame.setAttribute('aria-current', 'true'); else frame.removeAttribute('aria-current');
    }
    if (!this.playing) this.writeAddress();
  }

  writeAddress() {
    const wanted = `#at=${Math.round(this.position * 100) / 100}`;
    if (location.hash !== wanted) try { history.replaceState(null, '', wanted); } catch { /* some browsers, for files */ }
  }

  play() {
    if (this.position >= this.stops) this.position = 0;
    this.playing = true;
    $('play').textContent = 'Pause';
    const jumps = matchMedia('(prefers-reduced-motion: reduce)').matches;
    let before = performance.now(), position = this.position;
    const tick = (now) => {
      if (!this.playing) return;
      position += (now - before) / 1000 * Number($('speed').value) * (this.views[0].pace || 1);
      before = now;
      this.go(jumps ? Math.floor(position) : position);
      if (this.position >= this.stops) this.pause(); else requestAnimationFrame(tick);
    };
    requestAnimationFrame(tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    $('play').textContent = 'Play';
    this.writeAddress();
  }
}

// The first picture as a file of its own, with the colours that it has now.
function savePicture(views) {
  const copy = views[0].figure.cloneNode(true), style = document.querySelector('style').textContent;
  copy.setAttribute('xmlns', 'http://www.w3.org/2000/svg');
  if (document.documentElement.dataset.theme) copy.dataset.theme = document.documentElement.dataset.theme;
  copy.prepend(svg('style', {}, style), svg('rect', { width: '100%', height: '100%', fill: 'var(--paper)' }));
  const link = html('a', { href: URL.createObjectURL(new Blob([copy.outerHTML], { type: 'image/svg+xml' })), download: 'peal-view.svg' });
  link.click();
  URL.revokeObjectURL(link.href);
}

// All steps as small pictures, where there are few of one view.
function drawStrip(player) {
  const [view] = player.views, framed = player.views.length === 1 && view.framed, frames = document.querySelector('.frames');
  $('strip').hidden = !framed;
  frames.replaceChildren();
  for (let stop = 0; framed && stop <= view.stops; ++stop) {
    const button = html('button', { type: 'button', 'data-stop': stop }, html('h3', {}, view.said(stop)), view.frame(stop));
    button.addEventListener('click', () => { player.pause(); player.go(stop); scrollTo({ top: 0 }); });
    frames.append(button);
  }
  player.go(player.position);
}

function begin() {
  document.querySelector('h1').textContent = data.title;
  $('command').textContent = data.command;
  const clock = Math.max(1, ...data.views.flatMap((v) => [v.makespan || 0, ...(v.timelines || []).map((t) => t.end)]));
  const views = data.views.map((view) => new makers[view.kind](view, clock));
  $('views').append(...views.map((v) => v.section));
  if (views.every((v) => v.times)) {  // one clock for all
    const times = [...new Set(views.flatMap((v) => v.times))].sort((a, b) => a - b);
    for (const view of views) view.times = times;
  }
  if (views.length > 1) $('views').classList.add('several'); else views[0].section.querySelector('h2').remove();
  const intro = { schedule: 'Ranks are columns, and time is the slider: each step shows what stands in the blocks of every rank and, on arrows, the messages that fly next. Left and right step, space plays.',
    pipeline: 'Above, what each rank computes now, what it keeps for backward, and the results that fly to its neighbours; below, the whole of it in time. Left and right step, space plays.',
    step: 'What was measured: on each rank the ops of forward and backward above, and below them the buckets of gradients, from the moment at which each was ready. Red is time in which a rank only waits. Left and right step, space plays.',
    compare: 'The slider is the size of the buffer; a click on a field chooses the number of ranks. Turn the machine, and see who wins where.' };
  $('intro').textContent = data.views[0].intro || intro[data.views[0].kind] || '';
  const player = new Player(views);
  const [only] = views;
  if (views.length === 1 && only.schedule) {
    const whole = only.schedule;
    const show = (schedule) => {
      const view = new ScheduleView(schedule, clock);
      view.section.querySelector('h2').remove();
      if (schedule !== whole) view.offerRepair(() => show(whole)); else offer(view);
      player.replace(view);
      drawStrip(player);
    };
    const offer = (view) => { if (whole.verdict && whole.verdict.ok && whole.ranks <= 16 && !view.replay.news) view.offerDamage(show); };
    offer(only);
    only.told = -1;
  }
  drawStrip(player);
  $('save').addEventListener('click', () => savePicture(player.views));
  $('theme').addEventListener('click', () => {
    const dark = document.documentElement.dataset.theme ? document.documentElement.dataset.theme === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches;
    document.documentElement.dataset.theme = dark ? 'light' : 'dark';
  });
}

begin();
