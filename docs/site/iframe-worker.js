// SPDX-License-Identifier: Apache-2.0
// The search of the site runs in a Worker, which browsers refuse to pages that are read from a folder (file:). There a
// hidden frame takes its place: the theme looks for one by the name IFrameWorker, and would load it from elsewhere.
if (location.protocol === "file:") {
  window.Worker = window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      this.early = [];  // messages from before the script is there
      const start = () => {
        const frame = document.createElement("iframe");
        frame.hidden = true;
        document.body.append(frame);
        const inside = frame.contentWindow;
        inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
        const load = (source) => new Promise((done, failed) => {
          const script = inside.document.createElement("script");
          Object.assign(script, { src: source, onload: done, onerror: failed });
          inside.document.head.append(script);
        });
        inside.importScripts = (...sources) =>
          sources.reduce((before, source) => before.then(() => load(source)), Promise.resolve());
        load(new URL(url, location.href).href).then(() => {
          this.inside = inside;
          for (const data of this.early) this.postMessage(data);
        });
      };
      if (document.body) start(); else document.addEventListener("DOMContentLoaded", start);
    }
    postMessage(data) {
      if (this.inside) this.inside.dispatchEvent(new MessageEvent("message", { data }));
      else this.early.push(data);
    }
    terminate() {}
  };
}
