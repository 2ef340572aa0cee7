// SPDX-License-Identifier: Apache-2.0
// A document without layout, for pages of peal-schedule view where there is no browser: as much of the DOM as they and
// view_pages_test.sh use, and nothing of how it looks. Runs a page's scripts, then what waits for `load`; the console,
// errors included, goes to stderr as Chromium's does, and what has become of the document to stdout. A selector or a
// method that is not here is an error.
//   node view_document.js PAGE
'use strict';

const fs = require('fs'), vm = require('vm');

const VOID = new Set(['input', 'meta', 'link', 'br', 'hr', 'img']);  // elements without an end tag
const escaped = (text) => text.replace(/&/g, '&amp;').replace(/</g, '&lt;').replace(/>/g, '&gt;');

class Text {
  constructor(text) { this.textContent = String(text); }
  get outerHTML() { return this.parent && this.parent.raw ? this.textContent : escaped(this.textContent); }
  cloneNode() { return new Text(this.textContent); }
}

class Listener {
  addEventListener(type, what) { (this.heard ||= {})[type] = [...(this.heard[type] || []), what]; }
  dispatchEvent(event) {
    event.target ||= this;
    for (const what of (this.heard || {})[event.type] || []) what.call(this, event);
    if (event.bubbles && this.above) this.above.dispatchEvent(event);
  }
}

class Element extends Listener {
  constructor(name, inHtml = true) {
    super();
    Object.assign(this, { name, inHtml, attributes: new Map(), childNodes: [], parent: null });
    this.dataset = new Proxy({}, {
      get: (_, key) => this.attributes.get(`data-${key}`),
      set: (_, key, value) => { this.setAttribute(`data-${key}`, value); return true; },
    });
    this.style = new Proxy({}, { set: (_, key, value) => { value ? this.setAttribute('style', `${key}: ${value};`) : this.removeAttribute('style'); return true; } });
    this.classList = { add: (one) => this.setAttribute('class', [...this.classes, one].join(' ')) };
  }
  get above() { return this.parent || (this === page.root ? page.document : null); }
  get raw() { return this.name === 'script' || this.name === 'style'; }
  get classes() { return (this.attributes.get('class') || '').split(' ').filter(Boolean); }
  get tagName() { return this.inHtml ? this.name.toUpperCase() : this.name; }
  get children() { return this.childNodes.filter((n) => n instanceof Element); }
  get firstChild() { return this.childNodes[0] || null; }
  get lastChild() { return this.childNodes[this.childNodes.length - 1] || null; }

  setAttribute(key, value) { this.attributes.set(key, String(value)); }
  getAttribute(key) { return this.attributes.get(key) ?? null; }
  removeAttribute(key) { this.attributes.delete(key); }

  take(nodes) {
    return nodes.map((n) => {
      const made = n instanceof Element || n instanceof Text ? n : new Text(n);
      if (made.parent) made.parent.childNodes = made.parent.childNodes.filter((other) => other !== made);
      made.parent = this;
      return made;
    });
  }
  append(...nodes) { for (const n of this.take(nodes)) this.childNodes.push(n); }
  prepend(...nodes) { this.childNodes.unshift(...this.take(nodes)); }
  replaceChildren(...nodes) {
    for (const n of this.childNodes) n.parent = null;
    this.childNodes = [];
    this.append(...nodes);
  }
  replaceWith(node) {
    const [parent, [made]] = [this.parent, this.parent.take([node])];
    parent.childNodes[parent.childNodes.indexOf(this)] = made;
    this.parent = null;
  }
  remove() {
    this.parent.childNodes = this.parent.childNodes.filter((n) => n !== this);
    this.parent = null;
  }
  cloneNode(deep) {
    const made = new Element(this.name, this.inHtml);
    for (const [key, value] of this.attributes) made.setAttribute(key, value);
    if (deep) made.append(...this.childNodes.map((n) => n.cloneNode(true)));
    return made;
  }

  get textContent() { return this.childNodes.map((n) => n.textContent).join(''); }
  set textContent(text) { this.replaceChildren(...(text === '' ? [] : [text])); }
  get innerHTML() { return this.childNodes.map((n) => n.outerHTML).join(''); }
  get outerHTML() {
    const said = [...this.attributes].map(([key, value]) => ` ${key}="${escaped(value).replace(/"/g, '&quot;')}"`).join('');
    return `<${this.name}${said}>${VOID.has(this.name) ? '' : `${this.innerHTML}</${this.name}>`}`;
  }

  // Of forms.
  get hidden() { return this.attributes.has('hidden'); }
  set hidden(on) { if (on) this.setAttribute('hidden', ''); else this.removeAttribute('hidden'); }
  get max() { return this.getAttribute('max') || ''; }
  set max(value) { this.setAttribute('max', value); }
  get selectedIndex() { return this.children.length ? 0 : -1; }
  get value() { return this.valueNow ?? (this.name === 'select' ? this.selected : this.getAttribute('value') || ''); }
  set value(value) { this.valueNow = String(value); }
  get selected() { return (this.children.find((o) => o.attributes.has('selected')) || this.children[0])?.value ?? ''; }
  click() {
    if (this.disabled) return;
    const box = this.getAttribute('type') === 'checkbox';
    if (box) this.checked = !this.checked;
    this.dispatchEvent(new Event('click', { bubbles: true }));
    if (box) this.dispatchEvent(new Event('change', { bubbles: true }));
  }

  *all() { for (const child of this.children) { yield child; yield* child.all(); } }
  // `tag`, `.class`, `#id`, `[key=value]`, and those in a row within each other.
  matches(parts, last = parts.length - 1) {
    const [tag] = /^[a-z0-9]*/.exec(parts[last]), rest = parts[last].slice(tag.length);
    const wanted = rest.match(/\.[\w-]+|#[\w-]+|\[[\w-]+=[\w-]+\]/g) || [];
    if (wanted.join('') !== rest) throw new Error(`view_document.js: no such selector here: ${parts.join(' ')}`);
    const fits = (one) => one[0] === '.' ? this.classes.includes(one.slice(1)) : one[0] === '#' ? this.getAttribute('id') === one.slice(1)
      : this.getAttribute(one.slice(1, one.indexOf('='))) === one.slice(one.indexOf('=') + 1, -1);
    if ((tag && this.name !== tag) || !wanted.every(fits)) return false;
    if (last === 0) return true;
    for (let up = this.parent; up; up = up.parent) if (up.matches(parts, last - 1)) return true;
    return false;
  }
  querySelectorAll(selector) { return [...this.all()].filter((e) => e.matches(selector.split(' '))); }
  querySelector(selector) { return this.querySelectorAll(selector)[0] || null; }
}

class Event {
  constructor(type, { bubbles = false, key } = {}) { Object.assign(this, { type, bubbles, key }); }
  preventDefault() {}
}

// Elements, and text that is not marked up: no more of HTML than these pages have.
function parsed(text) {
  const root = new Element('root');
  let open = root;
  const token = /<!--[^]*?-->|<!DOCTYPE[^>]*>|<\/([a-z0-9]+)>|<([a-z0-9]+)((?:\s+[\w-]+(?:="[^"]*")?)*)\s*\/?>/gi;
  for (let at = 0; at < text.length;) {
    token.lastIndex = at;
    const found = token.exec(text), end = found ? found.index : text.length;
    if (end > at) open.append(text.slice(at, end));
    if (!found) break;
    at = token.lastIndex;
    if (found[1]) {
      while (open.name !== found[1] && open.parent) open = open.parent;
      open = open.parent || root;  // what follows </html> is appended, as a browser does
    } else if (found[2]) {
      const made = new Element(found[2]);
      for (const [, key, value] of found[3].matchAll(/([\w-]+)(?:="([^"]*)")?/g)) made.setAttribute(key, value || '');
      open.append(made);
      if (made.raw) {
        const close = text.indexOf(`</${made.name}>`, at);
        made.append(text.slice(at, close));
        at = close + made.name.length + 3;
      } else if (!VOID.has(made.name)) {
        open = made;
      }
    }
  }
  return root;
}

const page = { window: new Listener(), document: new Listener() };
page.document.above = page.window;
const said = (text) => fs.writeSync(2, `:CONSOLE: ${text}\n`);

const root = page.root = parsed(fs.readFileSync(process.argv[2], 'utf8'));
Object.assign(page.document, {
  documentElement: root.querySelector('html'),
  createElement: (name) => new Element(name),
  createElementNS: (_, name) => new Element(name, false),
  getElementById: (id) => root.querySelector(`#${id}`),
  querySelector: (selector) => root.querySelector(selector),
  querySelectorAll: (selector) => root.querySelectorAll(selector),
});
const location = { hash: '' };
const context = vm.createContext({
  document: page.document, location, performance, Event, KeyboardEvent: Event, MouseEvent: Event,
  console: { log: said, warn: said, error: said },
  history: { replaceState: (_, __, to) => { location.hash = to; } },
  matchMedia: () => ({ matches: false }), requestAnimationFrame: () => 0, scrollTo: () => {},
  addEventListener: (type, what) => page.window.addEventListener(type, what),
});
const guarded = (what) => { try { what(); } catch (error) { said(error.stack || error); } };
for (const script of root.querySelectorAll('script')) {
  if (!script.getAttribute('type')) guarded(() => vm.runInContext(script.textContent, context));
}
guarded(() => page.window.dispatchEvent(new Event('load')));
fs.writeSync(1, root.innerHTML);
