/* The page of the service: asks a question, and hands its events to the viewer as they arrive.
 *
 * The address says what is shown: nothing a new question, #/runs/ID an earlier answer.
 */
'use strict';
{
  const {h, button, count, lmName} = GaView;
  const question = h('input', {'aria-label': 'Question', placeholder: 'Ask your documents', maxlength: 20000, required: true});
  const key = h('input', {'aria-label': 'API key', placeholder: 'API key', type: 'password', autocomplete: 'off', hidden: true});
  const trouble = h('p', {class: 'trouble', role: 'alert'});
  const title = h('h1', {class: 'site'}, 'ga_dspy');
  const tagline = h('p', {class: 'muted'});
  const examples = h('div', {class: 'examples', role: 'group', 'aria-label': 'Examples'});
  const hint = h('div', {class: 'hint'}, h('p', {},
    'A question may need several documents: each search, what it added to the graph, and the evidence of the answer appear here as they come.'), examples);
  const shown = h('div', {}, hint);
  const form = h('form', {class: 'ask', onsubmit: submit}, question, key, h('button', {class: 'go'}, 'Ask'));
  const {has_graph: hasGraph} = JSON.parse(document.getElementById('ga-data').textContent);
  document.getElementById('ga').replaceChildren(h('header', {}, title, tagline), form, trouble, shown);
  document.title = 'ga_dspy';
  let asking = null;
  let attempts = 0;
  let view = null;
  question.focus();

  /* --- Requests: an error of the server becomes sentences. */

  function sentences({detail, found, expected, remedy}) {
    const parts = found ? [found, expected && `expected: ${expected}`, remedy] : [detail];
    return parts.filter(Boolean).map((text) => text[0].toUpperCase() + text.slice(1).replace(/\.?$/, '.')).join(' ');
  }

  async function call(path, {headers = {}, ...options} = {}) {
    const sent = key.value ? {...headers, 'X-API-Key': key.value} : headers;
    const reply = await fetch(path, {...options, headers: sent}).catch((error) => {
      throw error.name === 'AbortError' ? error : new Error('The server cannot be reached.');
    });
    if (reply.ok) return reply;
    if (reply.status === 401) key.hidden = false;
    const problem = await reply.json().catch(({name}) => ({name, detail: `the server answered with status ${reply.status}`}));
    throw Object.assign(new Error(sentences(problem)), {status: reply.status, name: problem.name});
  }

  /* Does something; an error is shown until the next attempt. */
  async function attempt(act) {
    const own = attempts += 1;
    trouble.textContent = '';
    await act().catch((error) => {
      if (error.name !== 'AbortError' && own === attempts) trouble.textContent = error.message;
    });
  }

  /* --- What can be asked. */

  async function about() {
    const found = await (await call('/about')).json();
    const passages = found.passages !== null && count(found.passages, 'passage') + (found.corpus && ` from ${found.corpus}`);
    const lms = new Set(Object.values(found.lms).map(lmName));
    title.textContent = found.corpus ? `Ask ${found.corpus}` : 'Ask your documents';
    document.title = `${title.textContent} · ga_dspy`;
    tagline.replaceChildren([passages, ...lms].filter(Boolean).join(' · '),
      ...(hasGraph ? [' · ', h('a', {href: '/graph'}, 'Explore the graph of the documents')] : []));
    examples.replaceChildren(...found.examples.map((text) => button({class: 'chip', dir: 'auto', onclick: () => {
      question.value = text;
      form.requestSubmit();
    }}, text)));
  }

  /* --- A question. */

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

  function draw() {
    if (!view) shown.replaceChildren();
    view ??= GaView.mount(shown);
    return view;
  }

  async function ask(signal) {
    const headers = {'Content-Type': 'application/json', Accept: 'text/event-stream'};
    const reply = await call('/ask', {method: 'POST', headers, body: JSON.stringify({question: question.value}), signal});
    draw().start(question.value);
    question.blur();
    for await (const event of events(reply.body)) {
      if (!event.kind) throw new Error(sentences(event));
      view.event(event);
    }
  }

  function submit(event) {
    event.preventDefault();
    asking?.abort();
    asking = new AbortController();
    attempt(() => ask(asking.signal));
  }
  key.addEventListener('change', () => attempt(about));
  document.addEventListener('keydown', (event) => event.target.tagName !== 'INPUT' && view?.press(event));
  about().catch((error) => { trouble.textContent = error.status === 401 ? 'This server asks for an API key.' : error.message; });
}
