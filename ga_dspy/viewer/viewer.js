/* How a graph found an answer: drawn from a finished prediction, or from events as they arrive.
 *
 *   const view = GaView.mount(element)   draws into an element, which should be empty
 *   view.start(question)                 a new question: everything before is forgotten
 *   view.event({kind, data})             an event of ga_dspy.programs.watching, as JSON
 *   view.show(prediction, question)      a finished prediction, as Prediction.to_dict() gives it
 *   view.go(n)                           to step n; the answer is one behind the last step
 *   view.select("triple", id)            or ("passage", id), ("entity", name); null for nothing
 *
 * Needs cytoscape and viewer.css. Whatever a corpus, an LM or a person wrote enters as text.
 */
'use strict';

const GaView = (() => {
  const SUPPORT = {chained: 'chained by the graph', quoted: 'quoted in a passage'};
  const EMBEDDED = 'ga-dspy/extractive';
  const MOST_WORDED = 80; // edges; of more, only those in focus show their words

  /* An element with attributes, listeners (onclick) and children; strings become text. */
  function h(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value == null || value === false) continue;
      if (typeof value === 'function') made.addEventListener(name.slice(2), value);
      else made.setAttribute(name, value === true ? '' : value);
    }
    made.append(...children.flat(9).filter((child) => child || child === 0));
    return made;
  }

  const fold = (text) => text.toLowerCase().replace(/\s+/g, ' ').trim();
  const count = (n, one, more) => `${n.toLocaleString('en')} ${n === 1 ? one : more || one + 's'}`;

  /* --- What is known of a question. */

  function emptyStory(question) {
    return {question, passages: new Map(), steps: [], answer: null, status: ''};
  }

  function addPassage(story, passage, label) {
    const content = passage.title ? `${passage.title}\n${passage.text}` : passage.text;
    // Spans count characters as Python does: one outside the first 65,536 is one, not two.
    const letters = /[\ud800-\udfff]/.test(content) ? Array.from(content) : null;
    const cut = (from, to) => letters ? letters.slice(from, to).join('') : content.slice(from, to);
    const size = (text) => letters ? Array.from(text).length : text.length;
    const start = passage.title ? size(passage.title) + 1 : 0;
    story.passages.set(passage.id, {...passage, label, cut, size, start, length: size(content)});
  }

  function storyOf(prediction, question) {
    const story = emptyStory(question);
    (prediction.passages || []).forEach((passage, i) => addPassage(story, passage, i + 1));
    story.steps = [...(prediction.steps || [])];
    story.answer = prediction;
    return story;
  }

  /* Nodes and edges under the names of the finished graph, each with the step that brought it. */
  function graphOf(story) {
    const gained = (part) => story.steps.flatMap((step) => step[part] || []);
    const graph = story.answer?.graph || {entities: gained('entities'), relations: gained('relations')};
    const names = new Map();
    for (const entity of graph.entities) {
      for (const alias of entity.aliases || []) names.set(fold(alias), entity.name);
    }
    for (const entity of graph.entities) names.set(fold(entity.name), entity.name);
    const nameOf = (text) => names.get(fold(text)) ?? text;
    const keys = ({head, relation, tail}) => {
      const ends = `${nameOf(head)}\0${nameOf(tail)}`;
      return [`${ends}\0${fold(relation)}`, ends];
    };

    const met = new Map();
    const meet = (key, number) => met.has(key) || met.set(key, number);
    const read = new Map();
    for (const step of story.steps) {
      for (const entity of step.entities || []) meet(nameOf(entity.name), step.number);
      for (const relation of step.relations || []) keys(relation).forEach((k) => meet(k, step.number));
      for (const id of step.passage_ids || []) read.set(id, step.number);
    }
    const nodes = new Map();
    const edges = [];
    const addEdge = (relation, more) => {
      const [exact, ends] = keys(relation);
      const cited = (relation.evidence || []).map((e) => read.get(e.passage)).filter(Boolean);
      const step = met.get(exact) ?? met.get(ends) ?? (cited.length ? Math.min(...cited) : 1);
      const edge = {...relation, head: nameOf(relation.head), tail: nameOf(relation.tail), step,
        id: `t${edges.length}`, ...more};
      for (const end of [edge.head, edge.tail]) {
        const node = nodes.get(end);
        if (!node) nodes.set(end, {name: end, step, plain: true});
        else node.step = Math.min(node.step, step);
      }
      edges.push(edge);
      return edge;
    };
    for (const entity of graph.entities) {
      nodes.set(entity.name, {...entity, step: met.get(entity.name) ?? Infinity});
    }
    for (const relation of graph.relations) addEdge(relation);
    for (const node of nodes.values()) if (node.step === Infinity) node.step = 1;
    for (const link of (story.answer?.evidence || []).filter((each) => each.head)) {
      const same = (edge, i) => keys(edge)[i] === keys(link)[i];
      const edge = edges.find((e) => same(e, 0)) || edges.find((e) => same(e, 1)) ||
        addEdge({...link, evidence: []}, {step: Infinity});
      edge.chain = true;
      edge.link = link;
    }
    return {nodes, edges};
  }

  /* Where texts stand in a passage, in its own counting; white space may differ. */
  function findQuote(passage, quote) {
    const content = passage.cut(0, passage.length);
    return quote.split(' … ').flatMap((piece) => {
      const words = piece.trim().split(/\s+/).map((w) => w.replace(/[.*+?^${}()|[\]\\]/g, '\\$&'));
      const found = piece.trim() && content.match(new RegExp(words.join('\\s+')));
      if (!found) return [];
      const start = passage.size(content.slice(0, found.index));
      return [{start, end: start + passage.size(found[0])}];
    });
  }

  /* --- The view of one question. */

  class View {
    constructor(root) {
      this.root = root;
      this.story = emptyStory('');
      this.at = 1;
      this.follows = true;
      this.part = (name, tag = 'div', more = {}) => (this[name] = h(tag, {class: name, ...more}));
      root.classList.add('ga');
      root.replaceChildren(
        this.part('head', 'header'),
        h('div', {class: 'columns'},
          this.part('story_', 'section', {'aria-label': 'Steps'}),
          this.part('side', 'section', {'aria-label': 'Graph'})));
      this.side.append(
        h('div', {class: 'map'},
          h('div', {class: 'tools'}, this.part('tabs', 'div', {role: 'group', 'aria-label': 'Step'}),
            h('div', {class: 'zoom'},
              h('button', {type: 'button', title: 'Smaller (−)', onclick: () => this.zoom(0.8)}, '−'),
              h('button', {type: 'button', title: 'Larger (+)', onclick: () => this.zoom(1.25)}, '+'),
              h('button', {type: 'button', title: 'Whole graph (0)', onclick: () => this.fit()}, '⤢'))),
          this.part('canvas', 'div', {role: 'img', 'aria-label': 'The graph; its triples are listed with the steps'}),
          this.part('legend')),
        this.part('detail', 'div', {'aria-live': 'polite'}));
      // The wheel scrolls the page; with Ctrl it zooms.
      this.canvas.addEventListener('wheel', (e) => e.ctrlKey || e.stopPropagation(), {capture: true});
      root.addEventListener('keydown', (event) => this.press(event));
      matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.paint());
      this.draw();
    }

    start(question) {
      this.story = emptyStory(question);
      this.at = 1;
      this.follows = true;
      this.draw();
    }

    show(prediction, question = this.story.question) {
      this.story = storyOf(prediction, question);
      this.at = this.last();
      this.draw();
    }

    event({kind, data}) {
      const {story} = this;
      const steps = story.steps;
      if (kind === 'search') {
        const step = steps[data.number - 1];
        if (step) step.reformulated = data.query;
        else steps.push({number: data.number, query: data.query, passage_ids: [], retrieved: []});
        story.status = `searching “${data.query}”`;
      } else if (kind === 'passages') {
        for (const passage of data.new) addPassage(story, passage, passage.label);
        const step = steps[data.number - 1];
        step.retrieved = data.retrieved;
        step.passage_ids = [...step.passage_ids, ...data.new.map((passage) => passage.id)];
        story.status = `reading ${count(data.new.length, 'new passage')}`;
      } else if (kind === 'step') {
        steps[data.number - 1] = data;
        story.status = '';
      } else if (kind === 'answering') {
        story.status = 'answering';
      } else if (kind === 'answer') {
        this.show(data);
        return;
      }
      if (this.follows) this.at = Math.max(1, steps.length);
      this.draw();
    }

    /* The place of the answer, or of the last step while there is none. */
    last() {
      return this.story.steps.length + (this.story.answer ? 1 : 0);
    }

    go(n) {
      this.at = Math.max(1, Math.min(n, this.last()));
      this.follows = this.at === this.last();
      this.select(null);
      this.turn();
      const card = this.story_.querySelector(`[data-step="${this.at}"]`);
      if (card && card.getBoundingClientRect().top < 0) card.scrollIntoView({block: 'start'});
    }

    press(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches('input')) return;
      const act = {
        ArrowRight: () => this.go(this.at + 1),
        ArrowLeft: () => this.go(this.at - 1),
        Escape: () => this.chosen && this.select(null),
        '+': () => this.zoom(1.25),
        '-': () => this.zoom(0.8),
        0: () => this.fit(),
      }[event.key];
      if (!act || (event.key === 'Escape' && !this.chosen)) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    }

    /* --- Everything, anew: the data changed. */

    draw() {
      this.graph = graphOf(this.story);
      this.chosen = null;
      this.drawHead();
      this.drawStory();
      const has = this.graph.nodes.size > 0;
      this.root.classList.toggle('no-graph', !has);
      if (has) this.sync();
      this.turn();
    }

    drawHead() {
      const {question, answer, status} = this.story;
      this.head.replaceChildren(...[
        question && h('h1', {dir: 'auto'}, question),
        status && h('p', {class: 'status', role: 'status'}, status),
        answer && this.drawAnswer(answer)].filter(Boolean));
    }

    drawAnswer(answer) {
      const cost = [answer.calls && count(answer.calls, 'LM call'),
        answer.tokens && count(answer.tokens, 'token'),
        answer.lm && (answer.lm === EMBEDDED ? 'embedded extractive LM, a floor, no rival to an LLM' : answer.lm)];
      const guess = !answer.answer && answer.guess ? `(a guess: ${answer.guess})` : '';
      const verdict = answer.verdict && answer.verdict !== 'answered' ? answer.verdict : '';
      return h('div', {class: 'answer'},
        h('p', {class: 'line'},
          h('span', {class: 'label'}, 'Answer'),
          h('strong', {dir: 'auto'}, answer.answer || 'none'), guess && h('span', {class: 'muted'}, guess),
          verdict && h('span', {class: 'badge warn'}, verdict),
          h('span', {class: `badge ${answer.supported ? 'chain' : 'warn'}`},
            SUPPORT[answer.supported] || (answer.supported ? 'supported' : 'not supported by a passage')),
          h('span', {class: 'muted cost'}, cost.filter(Boolean).join(' · '))),
        (answer.failures || []).map((failure) => h('p', {class: 'trouble'}, failure)));
    }

    drawStory() {
      const {steps, answer, passages} = this.story;
      const cards = steps.map((step) => this.card(step.number, step.reformulated || step.query,
        this.badges(step), this.drawStep(step)));
      if (answer) {
        const rest = steps.length ? [] : [...passages.values()].map((p) => this.drawPassage(p));
        cards.push(this.card(steps.length + 1, answer.answer || 'No answer', [], [this.drawEvidence(answer), rest]));
      }
      this.story_.replaceChildren(...cards);
      const tab = (n, name) => h('button', {type: 'button', 'data-tab': n, onclick: () => this.go(n)}, name);
      this.tabs.replaceChildren(...steps.map((step) => tab(step.number, `Step ${step.number}`)),
        ...(answer ? [tab(this.last(), 'Answer')] : []));
    }

    card(n, title, badges, body) {
      const isAnswer = n > this.story.steps.length;
      return h('article', {class: 'card', 'data-step': n},
        h('button', {type: 'button', class: 'top', 'aria-expanded': 'false', onclick: () => this.go(n)},
          h('span', {class: isAnswer ? 'number chain' : 'number'}, isAnswer ? '✓' : n),
          h('span', {class: 'query', dir: 'auto'}, title), h('span', {class: 'badges'}, badges)),
        h('div', {class: 'body', hidden: true}, body));
    }

    badges(step) {
      const gained = [...(step.entities || []), ...(step.relations || [])].length;
      const dropped = this.dropped(step).length || step.dropped_count;
      const tone = step.judgement === 'sufficient' ? 'good' : '';
      return [gained > 0 && h('span', {class: 'badge new'}, `+${gained}`),
        dropped > 0 && h('span', {class: 'badge warn'}, `${dropped} dropped`),
        step.failure && h('span', {class: 'badge warn'}, 'failed'),
        step.judgement && h('span', {class: `badge ${tone}`}, step.judgement)];
    }

    dropped(step) {
      return Array.isArray(step.dropped) ? step.dropped : [];
    }

    drawStep(step) {
      const {passages} = this.story;
      const known = (ids) => (ids || []).map((id) => passages.get(id)).filter(Boolean);
      const fresh = known(step.passage_ids);
      const again = known(step.retrieved).filter((passage) => !fresh.includes(passage));
      const edges = this.graph.edges.filter((edge) => edge.step === step.number);
      const linked = new Set(edges.flatMap((edge) => [edge.head, edge.tail]));
      const lone = [...this.graph.nodes.values()].filter((n) => n.step === step.number && !linked.has(n.name));
      const part = (name, ...content) => content.flat(9).filter(Boolean).length > 0 &&
        h('div', {class: 'part'}, h('h3', {}, name), content);
      const attributes = (step.attributes || []).map(([name, text]) => h('li', {}, h('b', {}, name), ` is ${text}`));
      const reads = [step.candidate && ['Candidate', step.candidate], step.next_query && ['Next', step.next_query]];
      return [
        step.reformulated && part('Query', h('p', {dir: 'auto'}, step.query,
          h('span', {class: 'muted'}, ' brought nothing new; searched instead: '), step.reformulated)),
        part(fresh.length ? `Read (${fresh.length} new)` : 'Read (nothing new)',
          fresh.map((passage) => this.drawPassage(passage, (step.unread || []).includes(passage.id))),
          again.length > 0 && h('p', {class: 'muted again'}, 'Found again: ', again.map((p) => this.chip(p)))),
        part(`Added to the graph (${count(edges.length, 'triple')})`,
          edges.map((edge) => this.triple(edge)),
          lone.length > 0 && h('p', {class: 'chips'}, lone.map((node) => this.entity(node.name))),
          attributes.length > 0 && h('ul', {}, attributes)),
        part('Dropped', this.dropped(step).map((drop) => h('p', {class: 'dropped', dir: 'auto'},
          h('s', {}, drop.item), h('span', {class: 'muted'}, ` ${drop.kind}: ${drop.reason}`)))),
        part('Judgement', step.judgement && h('span', {class: `badge ${step.judgement === 'sufficient' ? 'good' : ''}`}, step.judgement),
          step.reasoning && h('p', {dir: 'auto'}, step.reasoning),
          reads.filter(Boolean).map(([name, text]) => h('p', {dir: 'auto'}, h('b', {}, `${name}: `), text)),
          step.rule && h('p', {class: 'rule'}, step.rule), step.failure && h('p', {class: 'trouble'}, step.failure))];
    }

    drawEvidence(answer) {
      const links = (answer.evidence || []).map((link) => {
        const edge = this.graph.edges.find((each) => each.link === link || (link.head && each.link?.quote === link.quote &&
          each.link.head === link.head && each.link.tail === link.tail && each.link.relation === link.relation));
        const passage = this.story.passages.get(link.passage_id);
        return h('li', {}, edge && this.triple(edge),
          h('blockquote', {dir: 'auto'}, link.quote),
          passage ? this.chip(passage) : h('span', {class: 'muted'}, link.title || link.passage_id));
      });
      const claims = (answer.citations || []).map((citation) => h('li', {},
        h('span', {class: `badge ${citation.holds ? 'good' : 'warn'}`}, citation.holds ? 'holds' : 'not held'), ' ', citation.claim));
      return h('div', {class: 'part'}, h('h3', {}, links.length ? 'Rests on' : 'No evidence'),
        h('ol', {class: 'links'}, links), claims.length > 0 && h('ul', {class: 'links'}, claims));
    }

    /* --- Small pieces that can be clicked. */

    triple(edge) {
      return h('button', {type: 'button', class: edge.chain ? 'triple on-chain' : 'triple', 'data-triple': edge.id,
        'aria-pressed': 'false', onclick: () => this.select('triple', edge.id)},
        h('span', {dir: 'auto'}, edge.head), h('span', {class: 'relation'}, edge.relation), h('span', {dir: 'auto'}, edge.tail));
    }

    entity(name) {
      return h('button', {type: 'button', class: 'chip', 'data-entity': name, onclick: () => this.select('entity', name)}, name);
    }

    chip(passage) {
      return h('button', {type: 'button', class: 'chip', 'data-passage': passage.id,
        onclick: () => this.select('passage', passage.id)}, `[${passage.label}] ${passage.title || passage.id}`);
    }

    drawPassage(passage, unread = false) {
      return h('div', {class: unread ? 'passage unread' : 'passage'},
        h('button', {type: 'button', class: 'title', 'data-passage': passage.id,
          onclick: () => this.select('passage', passage.id)},
          h('span', {class: 'tag'}, passage.label), this.marked(passage, 0, passage.start, passage.title || passage.id),
          unread && h('span', {class: 'muted'}, ' no room in the prompt')),
        h('p', {class: 'text', dir: 'auto'}, this.marked(passage, passage.start, passage.length)));
    }

    /* A part of a passage with what the graph quotes of it: sentences of triples, names. */
    marked(passage, from, to, instead = '') {
      const spans = [];
      const add = (evidence, kind, of) => {
        for (const {passage: id, start, end} of evidence || []) {
          if (id === passage.id && start < to && end > from && end > start) {
            spans.push({start: Math.max(start, from), end: Math.min(end, to), kind, of});
          }
        }
      };
      for (const edge of this.graph.edges) {
        add(edge.evidence, 'fact', edge.id);
        if (edge.chain) add(edge.evidence, 'chain', edge.id);
      }
      for (const node of this.graph.nodes.values()) add(node.evidence, 'name', '');
      for (const link of (this.story.answer?.evidence || []).filter((l) => l.passage_id === passage.id)) {
        add(findQuote(passage, link.quote).map((span) => ({passage: passage.id, ...span})), 'chain', '');
      }
      if (from === 0 && !passage.title) return [instead];
      const bounds = [...new Set([from, to, ...spans.flatMap((s) => [s.start, s.end])])].sort((a, b) => a - b);
      return bounds.slice(1).map((end, i) => {
        const start = bounds[i];
        const text = passage.cut(start, end);
        const inside = spans.filter((s) => s.start <= start && end <= s.end);
        if (!inside.length) return text;
        const kinds = [...new Set(inside.map((s) => s.kind))];
        return h('mark', {class: kinds.join(' '), 'data-of': inside.map((s) => s.of).filter(Boolean).join(' ')}, text);
      });
    }

    /* --- Another step, another choice: nothing is made anew, so the keyboard's place stays. */

    turn() {
      for (const card of this.story_.children) {
        const open = Number(card.dataset.step) === this.at;
        card.classList.toggle('open', open);
        card.querySelector('.top').setAttribute('aria-expanded', String(open));
        card.querySelector('.body').hidden = !open;
      }
      for (const tab of this.tabs.children) {
        tab.setAttribute('aria-pressed', String(Number(tab.dataset.tab) === this.at));
      }
      const atAnswer = this.at > this.story.steps.length;
      const keys = atAnswer ? [['chain', 'evidence of the answer'], ['old', 'the rest of the graph']]
        : [['new', 'added in this step'], ['old', 'added before']];
      this.legend.replaceChildren(...keys.map(([kind, text]) => h('span', {}, h('i', {class: kind}), text)),
        h('span', {class: 'muted keys'}, '← → steps, click what you see'));
      this.light();
      this.fit();
      this.tell();
    }

    select(kind, id) {
      this.chosen = kind ? {kind, id} : null;
      for (const each of this.root.querySelectorAll('[data-triple]')) {
        each.setAttribute('aria-pressed', String(kind === 'triple' && each.dataset.triple === id));
      }
      for (const mark of this.root.querySelectorAll('mark')) {
        mark.classList.toggle('chosen', kind === 'triple' && mark.dataset.of.split(' ').includes(id));
      }
      this.light();
      this.tell();
    }

    /* What is known of the choice, beside the graph. */
    tell() {
      const {kind, id} = this.chosen || {};
      const close = h('button', {type: 'button', class: 'close', 'aria-label': 'Close', onclick: () => this.select(null)}, '×');
      const edges = (wanted) => this.graph.edges.filter(wanted).map((edge) => this.triple(edge));
      const about = {
        triple: () => {
          const edge = this.graph.edges.find((each) => each.id === id);
          const more = [edge.time && `time: ${edge.time}`, edge.confidence != null && `confidence: ${edge.confidence}`,
            Number.isFinite(edge.step) && `step ${edge.step}`, edge.chain && 'evidence of the answer'];
          return [h('p', {class: 'big', dir: 'auto'}, edge.head, h('span', {class: 'relation'}, edge.relation), edge.tail),
            this.sentences(edge), h('p', {class: 'muted'}, more.filter(Boolean).join(' · '))];
        },
        passage: () => {
          const passage = this.story.passages.get(id);
          const stated = edges((edge) => (edge.evidence || []).some((e) => e.passage === id));
          return [this.drawPassage(passage), this.metadata(passage),
            h('h3', {}, stated.length ? `States ${count(stated.length, 'triple')}` : 'States nothing in the graph'), stated];
        },
        entity: () => {
          const node = this.graph.nodes.get(id);
          const known = [node.type, ...(node.attributes || [])].filter(Boolean).join('; ');
          const aliases = (node.aliases || []).length > 0 && `also: ${node.aliases.join(', ')}`;
          return [h('p', {class: 'big', dir: 'auto'}, node.name), h('p', {}, known), h('p', {class: 'muted'}, aliases),
            edges((edge) => edge.head === id || edge.tail === id)];
        },
      }[kind];
      this.detail.classList.toggle('empty', !about);
      this.detail.replaceChildren(...(about ? [close, ...about().flat(9).filter(Boolean)]
        : [h('p', {class: 'muted'}, 'Click a triple to read the sentence that states it, a passage to see its triples.')]));
    }

    metadata(passage) {
      const known = Object.entries(passage.metadata || {}).map(([name, value]) => `${name}: ${value}`);
      return known.length > 0 && h('p', {class: 'muted'}, known.join(' · '));
    }

    sentences(edge) {
      const quotes = (edge.evidence || []).flatMap(({passage: id, start, end}) => {
        const passage = this.story.passages.get(id);
        return passage ? [{passage, text: end > start ? passage.cut(start, end) : ''}] : [];
      });
      const linked = !quotes.length && edge.link && this.story.passages.get(edge.link.passage_id);
      if (linked) quotes.push({passage: linked, text: edge.link.quote});
      return quotes.map(({passage, text}) => [text && h('blockquote', {dir: 'auto'}, this.named(text, [edge.head, edge.tail])),
        h('p', {}, this.chip(passage))]);
    }

    /* A text in which names stand out. */
    named(text, names) {
      const wanted = names.map((name) => name.replace(/[.*+?^${}()|[\]\\]/g, '\\$&')).filter(Boolean);
      const pieces = text.split(new RegExp(`(${wanted.join('|')})`, 'i'));
      return pieces.map((piece, i) => i % 2 ? h('b', {}, piece) : piece);
    }

    /* --- The drawing. */

    sync() {
      const {nodes, edges} = this.graph;
      this.cy ??= this.makeDrawing();
      const {cy} = this;
      const fresh = [];
      cy.batch(() => {
        cy.edges().remove();
        cy.nodes().filter((node) => !nodes.has(node.id())).remove();
        const places = this.spiral(cy.nodes().length);
        for (const node of nodes.values()) {
          if (cy.getElementById(node.name).nonempty()) continue;
          const beside = edges.find((e) => (e.head === node.name && cy.getElementById(e.tail).nonempty()) ||
            (e.tail === node.name && cy.getElementById(e.head).nonempty()));
          const near = beside && cy.getElementById(beside.head === node.name ? beside.tail : beside.head).position();
          const off = places.next().value;
          fresh.push(cy.add({data: {id: node.name, label: node.name}, classes: node.plain ? 'plain' : '',
            position: near ? {x: near.x + off.x / 4, y: near.y + off.y / 4} : off}));
        }
        cy.add(edges.map((edge) => ({data: {id: edge.id, source: edge.head, target: edge.tail, label: edge.relation}})));
      });
      if (fresh.length) this.arrange();
    }

    *spiral(n) {
      for (; ; n += 1) {
        const [angle, radius] = [n * 2.39996, 60 * Math.sqrt(n + 0.5)];
        yield {x: 1.5 * radius * Math.cos(angle), y: radius * Math.sin(angle)};
      }
    }

    makeDrawing() {
      const cy = cytoscape({container: this.canvas, minZoom: 0.05, maxZoom: 2.5, boxSelectionEnabled: false,
        autounselectify: true, style: this.style()});
      cy.on('tap', 'edge', (event) => this.select('triple', event.target.id()));
      cy.on('tap', 'node', (event) => this.select('entity', event.target.id()));
      cy.on('tap', (event) => event.target === cy && this.select(null));
      cy.on('mouseover', 'edge', (event) => event.target.addClass('hover'));
      cy.on('mouseout', 'edge', (event) => event.target.removeClass('hover'));
      new ResizeObserver(() => { cy.resize(); this.fit(); }).observe(this.canvas);
      return cy;
    }

    arrange() {
      const many = this.graph.nodes.size > 60;
      this.cy.layout({name: 'cose', randomize: false, animate: false, fit: false, nodeDimensionsIncludeLabels: true,
        idealEdgeLength: (edge) => 50 + 5 * Math.min(24, edge.data('label').length),
        nodeRepulsion: () => (many ? 60000 : 400000), nodeOverlap: 40, gravity: many ? 1 : 0.4, componentSpacing: 60,
        numIter: many ? 400 : 1000}).run();
    }

    style() {
      const css = getComputedStyle(this.root);
      const [ink, muted, line, card, blue, orange, paleBlue, paleOrange, soft] = ['ink', 'muted', 'line', 'card', 'blue',
        'orange', 'pale-blue', 'pale-orange', 'soft'].map((name) => css.getPropertyValue(`--${name}`).trim());
      const font = css.fontFamily;
      const worded = this.graph.edges.length <= MOST_WORDED ? 'data(label)' : '';
      return [
        {selector: 'node', style: {label: 'data(label)', shape: 'round-rectangle', width: 'label', height: 'label',
          padding: '7px', 'font-size': 13, 'font-family': font, 'text-valign': 'center', 'text-wrap': 'wrap', 'text-max-width': 130,
          color: ink, 'background-color': soft, 'border-width': 1.2, 'border-color': line, 'min-zoomed-font-size': 4}},
        {selector: 'node.plain', style: {'border-style': 'dashed', shape: 'ellipse'}},
        {selector: 'edge', style: {label: worded, width: 1.4, 'curve-style': 'bezier', 'target-arrow-shape': 'triangle',
          'arrow-scale': 0.9, 'line-color': line, 'target-arrow-color': line, 'font-size': 11, 'font-family': font, color: muted,
          'text-wrap': 'wrap', 'text-max-width': 110, 'text-background-color': card, 'text-background-opacity': 0.9,
          'text-background-padding': 2, 'min-zoomed-font-size': 5}},
        {selector: '.new', style: {'border-color': blue, 'background-color': paleBlue, 'line-color': blue, 'target-arrow-color': blue}},
        {selector: '.chain', style: {'border-color': orange, 'background-color': paleOrange, 'line-color': orange,
          'target-arrow-color': orange, width: 2.4, label: 'data(label)'}},
        {selector: 'node.chain', style: {width: 'label', 'border-width': 2, 'font-weight': 'bold'}},
        {selector: '.faint', style: {opacity: 0.35}},
        {selector: 'edge.hover', style: {label: 'data(label)', width: 3}},
        {selector: '.chosen', style: {opacity: 1, label: 'data(label)', width: 4, 'z-index': 9, color: ink}},
        {selector: 'node.chosen', style: {width: 'label', 'border-width': 3, 'border-color': ink}},
        {selector: '.later', style: {display: 'none'}}];
    }

    paint() {
      if (this.cy) this.cy.style(this.style());
    }

    /* Which parts are there at this step, which are new, lit or chosen. */
    light() {
      if (!this.cy || !this.graph.nodes.size) return;
      const atAnswer = this.at > this.story.steps.length;
      const {kind, id} = this.chosen || {};
      const chainEnds = new Set(this.graph.edges.filter((e) => e.chain).flatMap((e) => [e.head, e.tail]));
      const chosen = (edge) => (kind === 'triple' && edge.id === id) ||
        (kind === 'passage' && (edge.evidence || []).some((e) => e.passage === id));
      const near = new Set(this.graph.edges.filter(chosen).flatMap((e) => [e.head, e.tail]));
      const mark = (element, part, chain, isChosen) => element.classes([
        element.hasClass('plain') && 'plain', !atAnswer && part.step > this.at && 'later',
        !atAnswer && part.step === this.at && 'new', atAnswer && (chain ? 'chain' : chainEnds.size && 'faint'),
        isChosen && 'chosen'].filter(Boolean));
      this.cy.batch(() => {
        for (const edge of this.graph.edges) mark(this.cy.getElementById(edge.id), edge, edge.chain, chosen(edge));
        for (const [name, node] of this.graph.nodes) {
          mark(this.cy.getElementById(name), node, chainEnds.has(name), (kind === 'entity' && name === id) || near.has(name));
        }
      });
    }

    fit() {
      if (!this.cy || !this.graph.nodes.size) return;
      this.paint();
      const seen = this.cy.elements(':visible');
      if (seen.empty()) return;
      this.cy.fit(seen, 24);
      if (this.cy.zoom() > 1.15) { this.cy.zoom(1.15); this.cy.center(seen); }
    }

    zoom(by) {
      const {cy} = this;
      if (cy) cy.zoom({level: cy.zoom() * by, renderedPosition: {x: cy.width() / 2, y: cy.height() / 2}});
    }
  }

  return {mount: (element) => new View(element), h, count};
})();

/* A page that holds a prediction shows it. */
{
  const data = JSON.parse(document.getElementById('ga-data')?.textContent || '{}');
  if (data.prediction) {
    const view = GaView.mount(document.getElementById('ga'));
    view.show(data.prediction, data.question);
    document.body.addEventListener('keydown', (event) => view.press(event));
  }
}
