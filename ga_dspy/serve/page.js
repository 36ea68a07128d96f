/* The page of the service: asks a question, and hands its events to the viewer as they arrive. */
'use strict';
{
  const {h} = GaView;
  const question = h('input', {'aria-label': 'Question', placeholder: 'Ask your documents', maxlength: 20000, required: true});
  const key = h('input', {'aria-label': 'API key', placeholder: 'API key', type: 'password', autocomplete: 'off', hidden: true});
  const trouble = h('p', {class: 'trouble', role: 'alert'});
  const shown = h('div', {}, h('p', {class: 'hint'},
    'A question may need several documents: each search, what it added to the graph, and the evidence of the answer appear here as they come.'));
  const form = h('form', {class: 'ask'}, question, key, h('button', {class: 'go'}, 'Ask'));
  const {has_graph: hasGraph} = JSON.parse(document.getElementById('ga-data').textContent);
  document.getElementById('ga').replaceChildren(form, trouble, hasGraph ? h('p', {}, h('a', {href: '/graph'}, 'Explore the graph of the documents')) : '', shown);
  document.title = 'ga_dspy';
  let asking = null;
  let view = null;
  question.focus();

  /* The events of a stream: each is the JSON of its data. */
  async function* events(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let text = '';
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const blocks = (text + part.value).split('\n\n');
      text = blocks.pop();
      for (const block of blocks) yield JSON.parse(block.slice(block.indexOf('data: ') + 6));
    }
  }

  async function ask(signal) {
    const headers = {'Content-Type': 'application/json', Accept: 'text/event-stream'};
    if (key.value) headers['X-API-Key'] = key.value;
    const body = JSON.stringify({question: question.value});
    const reply = await fetch('/ask', {method: 'POST', headers, body, signal});
    if (!reply.ok) {
      key.hidden = reply.status !== 401;
      throw new Error((await reply.json()).detail);
    }
    if (!view) shown.replaceChildren();
    view ??= GaView.mount(shown);
    view.start(question.value);
    question.blur();
    for await (const event of events(reply.body)) {
      if (!event.kind) throw new Error(event.detail);
      view.event(event);
    }
  }

  form.addEventListener('submit', (event) => {
    event.preventDefault();
    asking?.abort();
    asking = new AbortController();
    trouble.textContent = '';
    ask(asking.signal).catch((error) => {
      if (error.name !== 'AbortError') trouble.textContent = error.message;
    });
  });
  document.addEventListener('keydown', (event) => event.target.tagName !== 'INPUT' && view?.press(event));
}
