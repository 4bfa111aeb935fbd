// Browsers start no worker for a page that is a file. There the search runs in a hidden frame instead, under the name by
// which Material for MkDocs knows such frames.
if (location.protocol === "file:") {
  window.IFrameWorker = class extends EventTarget {
    constructor(url) {
      super();
      const frame = document.createElement("iframe");
      frame.hidden = true;
      document.documentElement.append(frame);
      const scope = frame.contentWindow;
      scope.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      scope.importScripts = async (...urls) => {
        for (const each of urls) await run(each);
      };
      const run = (source) =>
        new Promise((resolve, reject) => {
          const script = frame.contentDocument.createElement("script");
          Object.assign(script, { src: source, onload: resolve, onerror: reject });
          frame.contentDocument.head.append(script);
        });
      const started = run(url);
      this.postMessage = (data) => started.then(() => scope.dispatchEvent(new scope.MessageEvent("message", { data })));
      this.terminate = () => frame.remove();
    }
  };
  window.Worker = window.IFrameWorker;
}
