// A page opened as a file may not start a worker, and the search is one. There, and only there, its
// script runs in a hidden frame instead, which answers the same messages.
if (location.protocol === "file:") {
  window.Worker = class extends EventTarget {
    constructor(url) {
      super();
      this.frame = document.createElement("iframe");
      this.frame.hidden = true;
      document.documentElement.append(this.frame);
      const { contentWindow: inside, contentDocument: page } = this.frame;
      inside.postMessage = (data) => this.dispatchEvent(new MessageEvent("message", { data }));
      this.ready = new Promise((resolve) => {
        const script = page.createElement("script");
        script.src = url;
        script.onload = resolve;
        page.head.append(script);
      });
    }
    async postMessage(data) {
      await this.ready;
      this.frame.contentWindow.dispatchEvent(new MessageEvent("message", { data }));
    }
    terminate() {
      this.frame.remove();
    }
  };
}
