// How does a page reach what answers it? A link is { ask(name, args) -> Promise, live, kind }.
// Three of them: a server beside the page, the kernel of a notebook, and a page in one file,
// which answers from what it carries. A refused question rejects with an Error of one sentence.

export function httpLink(base) {
  async function ask(name, args = {}) {
    let response;
    try {
      response = await fetch(`${base}ask/${name}`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: JSON.stringify(args),
      });
    } catch {
      throw new Error("The explorer does not answer: was it stopped?");
    }
    const answer = await response.json().catch(() => ({ error: `The explorer answered ${response.status}.` }));
    if (!response.ok || answer.error) throw new Error(answer.error ?? `The explorer answered ${response.status}.`);
    return answer;
  }
  return { ask, live: true, kind: "server" };
}

/** Questions as messages to the kernel, { id, name, args }; answers come back as { id, answer }. */
export function widgetLink(model) {
  const waiting = new Map();
  const own = Math.random().toString(36).slice(2); // two cells may show one page: both hear every answer
  let last = 0;
  model.on("msg:custom", (message) => {
    const asked = waiting.get(message?.id);
    if (!asked) return;
    waiting.delete(message.id);
    if (message.answer?.error) asked.reject(new Error(message.answer.error));
    else asked.resolve(message.answer);
  });
  function ask(name, args = {}) {
    const id = `${own}-${(last += 1)}`;
    return new Promise((resolve, reject) => {
      waiting.set(id, { resolve, reject });
      model.send({ id, name, args });
    });
  }
  return { ask, live: true, kind: "notebook" };
}

export function storedLink(answers) {
  async function ask(name, args = {}) {
    if (!(name in answers)) throw new Error("This page was saved: it shows what was stored and asks no model.");
    const found = answers[name];
    return typeof found === "function" ? found(args) : found;
  }
  return { ask, live: false, kind: "saved" };
}
