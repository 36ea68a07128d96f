/* The page of the service: asks a question, and passes its events to the viewer as they arrive.
 *
 * The fragment of the address is empty for a new question, or #/runs/ID for an earlier answer.
 */
'use strict';
{
  const {h, button, muted, count, lmName} = GaView;
  const STORED = 'ga-dspy history';
  const question = h('input', {'aria-label': 'Question', placeholder: 'Ask your documents', maxlength: 20000, required: true});
  const key = h('input', {'aria-label': 'API key', placeholder: 'API key', type: 'password', autocomplete: 'off', hidden: true});
  const trouble = h('p', {class: 'trouble', role: 'alert'});
  const title = h('a', {href: '#'}, 'ga_dspy');
  const examples = h('div', {class: 'examples', role: 'group', 'aria-label': 'Examples'});
  const hint = h('div', {class: 'hint'}, h('p', {},
    'A question may need several documents. Each search, what it adds to the graph, and the evidence of the answer appear here as they arrive.'), examples);
  const shown = h('div', {}, hint);
  const past = h('details', {class: 'history'});
  const files = h('input', {type: 'file', multiple: true, 'aria-label': 'Add documents', onchange: () => upload(files.files)});
  const table = h('div');
  const outcome = h('p', {role: 'status'});
  const drop = h('div', {class: 'drop', ondragover: hover, ondragleave: hover, ondrop: (event) => { hover(event); upload(event.dataTransfer.files); }},
    'Drop files here, or choose them: ', files);
  const documents = h('details', {class: 'stored', hidden: true, ontoggle: () => documents.open && attempt(() => fill())}, h('summary', {}, 'Documents'),
    drop, outcome, table);
  const form = h('form', {class: 'ask', onsubmit: submit}, question, key, h('button', {class: 'go'}, 'Ask'));
  const {has_graph: hasGraph} = JSON.parse(document.getElementById('ga-data').textContent);
  const graphLink = hasGraph ? h('a', {href: '/graph'}, 'Explore the graph of the documents') : '';
  const tagline = h('p', {class: 'muted'}, graphLink);
  document.getElementById('ga').replaceChildren(h('header', {}, h('h1', {}, title), tagline), form, trouble, shown, past, documents);
  document.title = 'ga_dspy';
  let asking = null;
  let attempts = 0;
  let view = null;
  question.focus();

  /* --- Requests, and the error messages of the server as sentences. */

  function sentences({detail, found, expected, remedy}) {
    const parts = found ? [found, expected && `expected: ${expected}`, remedy] : [detail];
    return parts.filter(Boolean).map((text) => text.replace(/^[a-z](?=[a-z]*[ ,;])/, (first) => first.toUpperCase()).replace(/\.?$/, '.')).join(' ');
  }

  async function call(path, {headers = {}, ...options} = {}) {
    const sent = key.value ? {...headers, 'X-API-Key': key.value} : headers;
    const reply = await fetch(path, {...options, headers: sent}).catch((error) => {
      throw error.name === 'AbortError' ? error : new Error('The server cannot be reached.');
    });
    if (reply.ok) return reply;
    if (reply.status === 401) key.hidden = false;
    if (reply.status === 401 && !key.value) throw new Error('This server asks for an API key.');
    const problem = await reply.json().catch(({name}) => ({name, detail: `the server answered with status ${reply.status}`}));
    throw Object.assign(new Error(sentences(problem)), {name: problem.name});
  }

  /* Runs an action; its error is shown until the next attempt. */
  async function attempt(act) {
    const own = attempts += 1;
    trouble.textContent = '';
    await act().catch((error) => {
      if (error.name !== 'AbortError' && own === attempts) trouble.textContent = error.message;
    });
  }

  /* --- The corpus, the LMs and the examples. */

  async function about() {
    const found = await (await call('/about')).json();
    const passages = found.passages !== null && count(found.passages, 'passage') + (found.corpus && ` from ${found.corpus}`);
    const lms = new Set(Object.values(found.lms).map(lmName));
    title.textContent = found.corpus ? `Ask ${found.corpus}` : 'Ask your documents';
    document.title = `${title.textContent} · ga_dspy`;
    tagline.replaceChildren([passages, ...lms].filter(Boolean).join(' · '),
      hasGraph ? ' · ' : '', graphLink);
    documents.hidden = !found.can_write;
    examples.replaceChildren(...found.examples.map((text) => button({class: 'chip', dir: 'auto', onclick: () => {
      question.value = text;
      form.requestSubmit();
    }}, text)));
  }

  /* --- Documents, for keys that may write. */

  function hover(event) {
    event.preventDefault();
    drop.classList.toggle('over', event.type === 'dragover');
  }

  function upload(chosen) {
    const body = new FormData();
    for (const file of chosen) body.append('file', file);
    return change(`adding ${count(chosen.length, 'file')}`, '/documents', {method: 'POST', body});
  }

  /* Changes the index, and shows what has changed. */
  function change(doing, path, options) {
    return attempt(async () => {
      outcome.textContent = doing;
      try {
        const {documents: added = [], ...counts} = await (await call(path, options)).json();
        const kinds = ['added', 'changed', 'removed', 'unchanged'].filter((kind) => counts[kind]);
        outcome.replaceChildren(kinds.map((kind) => `${count(counts[kind], 'passage')} ${kind}`).join(', '),
          ...added.flatMap(({title: name, notes}) => notes.map((note) => h('div', {}, `${name}: ${note}`))));
      } catch (error) {
        outcome.textContent = '';
        throw error;
      }
      files.value = '';
      await Promise.all([fill(), about()]);
    });
  }

  async function fill(most = 100) {
    const found = await (await call(`/documents?k=${most}`)).json();
    const rows = found.documents.map((one) => h('tr', {}, h('th', {scope: 'row', dir: 'auto'}, one.title || one.id, one.source && one.source !== one.title && muted(` ${one.source}`)),
      h('td', {}, one.passages.toLocaleString('en')), h('td', {}, deleter(one))));
    const more = found.total > rows.length && (most < 1000 ? button({class: 'chip', onclick: () => attempt(() => fill(1000))}, 'Show more')
      : muted(`and ${count(found.total - rows.length, 'more document')}`));
    table.replaceChildren(h('table', {class: 'documents'}, h('caption', {}, count(found.total, 'document')),
      h('thead', {}, h('tr', {}, ['Document', 'Passages'].map((name) => h('th', {scope: 'col'}, name)), h('td', {}))), h('tbody', {}, rows)), more || '');
  }

  /* Returns a button that deletes a document on the second click. */
  function deleter({id, title: name}) {
    const made = button({class: 'chip', 'aria-label': `Delete ${name || id}`, onclick: () => {
      if (made.dataset.sure) return change('deleting', `/documents/${encodeURIComponent(id)}`, {method: 'DELETE'});
      made.dataset.sure = true;
      made.setAttribute('aria-label', `Delete ${name || id} for good`);
      return made.replaceChildren('Delete for good');
    }, onblur: () => {
      delete made.dataset.sure;
      made.setAttribute('aria-label', `Delete ${name || id}`);
      made.replaceChildren('Delete');
    }}, 'Delete');
    return made;
  }

  /* --- Asking a question. */

  /* Yields the data of each event of a stream, parsed from JSON. */
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
    const root = h('div');
    if (!view) shown.replaceChildren(root);
    view ??= GaView.mount(root);
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
      if (event.kind === 'answer') finish(event.data);
    }
  }

  /* --- Answers: their addresses and actions, and the history of this browser. */

  const addressOf = (id) => `#/runs/${id}`;
  const addressed = () => location.hash.match(/^#\/runs\/(\w+)$/)?.[1];

  function finish({id, question: asked, answer}) {
    if (location.hash !== addressOf(id)) history.pushState(null, '', addressOf(id));
    remember([{id, question: asked, answer}, ...earlier().filter((each) => each.id !== id)]);
    const done = h('span', {class: 'muted', role: 'status'});
    const tell = (text) => () => { done.textContent = text; };
    const copy = () => attempt(() => navigator.clipboard ? navigator.clipboard.writeText(location.href).then(tell('copied'))
      : Promise.reject(new Error(`This browser copies on secure pages only: ${location.href}`)));
    const rate = (right) => button({onclick: () => attempt(() => call(`/runs/${id}/feedback`, {
      method: 'POST', headers: {'content-type': 'application/json'}, body: JSON.stringify({right}),
    }).then(tell('thank you')))}, right ? 'Right' : 'Wrong');
    view.head.append(h('p', {class: 'actions'}, rate(true), rate(false), button({onclick: copy}, 'Copy link'),
      button({onclick: () => attempt(() => save(id, asked).then(tell('saved')))}, 'Save as HTML'), done));
  }

  async function save(id, asked) {
    const href = URL.createObjectURL(await (await call(`/runs/${id}/page`)).blob());
    h('a', {href, download: `${asked.replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 60)}.html`}).click();
    setTimeout(() => URL.revokeObjectURL(href), 60_000);
  }

  async function open(id) {
    asking?.abort();
    const known = earlier().find((each) => each.id === id);
    if (known) question.value = known.question; // to ask it again if the server no longer has the answer
    const record = await (await call(`/runs/${id}`)).json();
    if (addressed() !== id) return;
    draw().show(record, record.question);
    finish(record);
  }

  function earlier() {
    try {
      return JSON.parse(localStorage.getItem(STORED)).filter((each) => /^\w+$/.test(each.id));
    } catch { // no history, invalid content, or a browser without storage
      return [];
    }
  }

  function remember(every) {
    const kept = every.slice(0, 20);
    try {
      localStorage.setItem(STORED, JSON.stringify(kept));
    } catch { /* a browser without storage */ }
    list(kept);
  }

  function list(kept) {
    past.hidden = kept.length === 0;
    past.replaceChildren(h('summary', {}, `History of this browser (${kept.length})`),
      h('ol', {}, kept.map((each) => h('li', {dir: 'auto'}, h('a', {href: addressOf(each.id)}, `${each.question}`), muted(` ${each.answer || 'no answer'}`)))),
      button({class: 'chip', onclick: () => remember([])}, 'Clear'));
  }

  function route() {
    if (addressed()) return attempt(() => open(addressed()));
    asking?.abort();
    view?.remove();
    view = null;
    return shown.replaceChildren(hint);
  }

  const start = () => attempt(async () => {
    await about();
    if (addressed() && !view && !asking) await open(addressed());
  });

  function submit(event) {
    event.preventDefault();
    asking?.abort();
    asking = new AbortController();
    attempt(() => ask(asking.signal));
  }
  key.addEventListener('change', start);
  addEventListener('hashchange', route);
  document.addEventListener('keydown', (event) => event.target.tagName !== 'INPUT' && view?.press(event));
  list(earlier());
  start();
}
