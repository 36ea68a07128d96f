/* The view of a question: its steps, graph and answer, from a finished prediction or from events as they arrive.
 *
 *   const view = GaView.mount(element)   draws into an empty element
 *   view.start(question)                 starts a new question, and removes the previous one
 *   view.event({kind, data})             shows an event of ga_dspy.programs.watching, as JSON
 *   view.show(prediction, question)      shows a finished prediction, from Prediction.to_dict()
 *   view.go(n)                           goes to step n; the answer comes after the last step
 *   view.select(kind, id)                selects a "triple" (t0, t1, …), a "passage" or an "entity"; null: nothing
 *   view.press(event)                    handles a key that was pressed elsewhere on the page
 *   view.remove()                        empties the element
 *
 * It needs viewer.css and Cytoscape. Content from a corpus, an LM or a user is only ever inserted as text.
 */
'use strict';

const GaView = (() => {
  const SUPPORT = {chained: 'a chain of stated links', quoted: 'quoted in a passage'};
  const LMS = {'ga-dspy/extractive': 'embedded extractive LM, not an LLM'};
  const lmName = (lm) => LMS[lm] || lm.replace(/^.*\//, '');
  const WIDEST = 160; // pixels of a name or an edge label
  const MOST_WORDED = 80; // edges; if there are more, only those in focus have labels

  /* Returns an element with attributes, listeners (onclick) and children; strings become text. */
  function h(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (typeof value === 'function') made.addEventListener(name.slice(2), value);
      else if (value != null && value !== false) made.setAttribute(name, value === true ? '' : value);
    }
    made.append(...children.flat(9).filter((child) => child || child === 0));
    return made;
  }
  const button = (attributes, ...children) => h('button', {type: 'button', ...attributes}, ...children);
  const badge = (tone, text) => text && h('span', {class: `badge ${tone}`}, text);
  const muted = (...text) => h('span', {class: 'muted'}, ...text);
  const part = (name, ...content) => content.flat(9).some(Boolean) && h('div', {class: 'part'}, h('h3', {}, name), content);
  const count = (n, word) => `${n.toLocaleString('en')} ${word}${n === 1 ? '' : 's'}`;
  const fold = (text) => text.toLowerCase().replace(/\s+/g, ' ').trim();
  const literal = (text) => text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');

  /* Hides Markdown's emphasis, code marks, headings and table borders in texts. Hidden characters become \0, so that
   * spans, which count characters, stay valid. */
  const hidden = (text) => '\0'.repeat(text.length);
  const inner = (mark) => (all, text) => hidden(mark) + text + hidden(mark);
  const isTable = (text) => /^ *\|.*\|/m.test(text);
  const masked = (text) => text.replace(/^ *\|[ :|-]*-{3}[ :|-]*\|? *$\n?/gm, hidden)
    .replace(/(?<=^|\0) *\|.*\| *$/gm, (row) => row.replace(/^ *\||\| *$/g, hidden).replaceAll('|', '·'))
    .replace(/^#{1,6} |^\*\*(?=\S[^*]*$)|(?<=^[^*]*\S)\*\*$/gm, hidden)
    .replace(/(?<!\w)\*\*(?=\S)(.*?\S)\*\*(?!\w)/g, inner('**'))
    .replace(/(?<!\w)__(?![a-z_]+__)(?=\S)(.*?\S)__(?!\w)/g, inner('__'))
    .replace(/(?<![\w*])([*_])(?=[^\s*_])([^\n*_]*[^\s*_])\1(?![\w*])/g, (all, mark, text) => inner(mark)(all, text))
    .replace(/`([^`\n]+)`/g, inner('`'));
  const unmasked = (text) => text.replaceAll('\0', '');
  const unmarked = (text) => unmasked(masked(text));
  const newStory = (question) => ({question, passages: new Map(), steps: [], answer: null, status: ''});

  function addPassage(story, passage, label) {
    const content = passage.title ? `${passage.title}\n${passage.text}` : passage.text;
    // Spans count code points, as Python does; in JavaScript, those above 65,535 have two units.
    const letters = /[\ud800-\udfff]/.test(content) ? Array.from(content) : null;
    const clean = masked(content);
    const cleanLetters = letters && Array.from(clean);
    const size = (text) => letters ? Array.from(text).length : text.length;
    story.passages.set(passage.id, {...passage, label, content, size, length: size(content),
      start: passage.title ? size(passage.title) + 1 : 0,
      cut: (from, to) => unmasked(letters ? cleanLetters.slice(from, to).join('') : clean.slice(from, to))});
  }

  /* Returns nodes and edges with the names of the latest graph, each with the step that added it. */
  function graphOf({steps, answer}) {
    const gained = (kind) => steps.flatMap((step) => step[kind] || []);
    const graph = answer?.graph || {entities: gained('entities'), relations: gained('relations')};
    const names = new Map(graph.entities.flatMap((e) => (e.aliases || []).map((alias) => [fold(alias), e.name])));
    graph.entities.forEach((e) => names.set(fold(e.name), e.name));
    const nameOf = (text) => names.get(fold(text)) ?? text;
    const endsOf = ({head, tail}) => JSON.stringify([nameOf(head), nameOf(tail)]);
    const keyOf = (one) => endsOf(one) + fold(one.relation);
    const met = new Map();
    const meet = (key, number) => met.has(key) || met.set(key, number);
    for (const {number, entities = [], relations = [], passage_ids: read = []} of steps) {
      entities.forEach((e) => meet(nameOf(e.name), number));
      relations.forEach((r) => { meet(keyOf(r), number); meet(endsOf(r), number); });
      read.forEach((id) => meet(`passage ${id}`, number));
    }
    const nodes = new Map(graph.entities.map((e) => [e.name, {...e, step: met.get(e.name) ?? Infinity}]));
    const edges = [];
    const add = (relation, more = {}) => {
      const read = (relation.evidence || []).map((e) => met.get(`passage ${e.passage}`) ?? 1);
      const edge = {...relation, id: `t${edges.length}`, head: nameOf(relation.head), tail: nameOf(relation.tail),
        step: met.get(keyOf(relation)) ?? met.get(endsOf(relation)) ?? Math.min(...read, Infinity), ...more};
      for (const end of [edge.head, edge.tail]) {
        if (!nodes.has(end)) nodes.set(end, {name: end, step: edge.step, plain: true});
        nodes.get(end).step = Math.min(nodes.get(end).step, edge.step);
      }
      edges.push(edge);
      return edge;
    };
    graph.relations.forEach((relation) => add(relation));
    for (const link of (answer?.evidence || []).filter((each) => each.head)) {
      const edge = edges.find((e) => keyOf(e) === keyOf(link)) || edges.find((e) => endsOf(e) === endsOf(link)) || add(link);
      edge.links = [...(edge.links || []), link];
    }
    return {nodes, edges};
  }

  /* Returns the spans of a quote in a passage; white space may differ. */
  function spansOf(passage, quote) {
    return quote.split(' … ').filter((piece) => piece.trim()).flatMap((piece) => {
      const found = passage.content.match(new RegExp(piece.trim().split(/\s+/).map(literal).join('\\s+')));
      const start = found && passage.size(passage.content.slice(0, found.index));
      return found ? [{passage: passage.id, start, end: start + passage.size(found[0])}] : [];
    });
  }

  /* The drawing of a graph with its zoom buttons; nodes and edge labels are placed so that none covers another.
   * `pick(kind, id)` is called for what is clicked: an "entity", a "triple", or null for the background. */
  class Drawing {
    constructor(pick, about, ...tools) {
      this.pick = pick;
      this.watch = new AbortController();
      const zoom = (title, sign, act) => button({title, 'aria-label': title, onclick: act}, sign);
      this.canvas = h('div', {class: 'canvas', role: 'img', 'aria-label': about});
      this.legend = h('div', {class: 'legend'});
      this.map = h('div', {class: 'map'}, h('div', {class: 'tools'}, tools,
        h('div', {}, zoom('Smaller', '−', () => this.zoom(0.8)), zoom('Larger', '+', () => this.zoom(1.25)),
          zoom('Whole graph', '⤢', () => this.fit()))), this.canvas, this.legend);
      // The wheel scrolls the page; with Ctrl, it zooms.
      this.canvas.addEventListener('wheel', (event) => event.ctrlKey || event.stopPropagation(), {capture: true});
      matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.cy?.style(this.style()),
        {signal: this.watch.signal});
    }

    /* Draws nodes by name, and edges with the names of their ends; nodes that are already drawn keep their places. */
    draw({nodes, edges}) {
      this.edges = edges;
      this.cy ??= this.make();
      const {cy} = this;
      const drawn = (name) => cy.getElementById(`n ${name}`);
      const fresh = [...nodes.values()].filter((node) => drawn(node.name).empty());
      cy.batch(() => {
        cy.edges().remove();
        cy.nodes().filter((node) => !nodes.has(node.data('label'))).remove();
        for (const [i, {name, plain}] of fresh.entries()) {
          const place = {x: 90 * Math.sqrt(i + 1) * Math.cos(2.4 * i), y: 60 * Math.sqrt(i + 1) * Math.sin(2.4 * i)};
          const beside = edges.flatMap((e) => e.head === name ? [e.tail] : e.tail === name ? [e.head] : []).map(drawn).find((n) => n.nonempty());
          const {x, y} = beside?.position() || {x: 0, y: 0};
          cy.add({data: {id: `n ${name}`, label: name}, classes: plain ? 'plain' : '', position: {x: x + place.x, y: y + place.y}});
        }
        cy.add(edges.map((e) => ({data: {id: e.id, source: `n ${e.head}`, target: `n ${e.tail}`, label: e.relation}})));
      });
      cy.style(this.style());
      if (fresh.length) this.arrange();
    }

    make() {
      cytoscape.warnings(false);
      const cy = cytoscape({container: this.canvas, minZoom: 0.05, maxZoom: 2.5, autounselectify: true});
      cy.on('tap', (event) => event.target === cy && this.pick(null));
      cy.on('tap', 'edge', (event) => this.pick('triple', event.target.id()));
      cy.on('tap', 'node', (event) => this.pick('entity', event.target.data('label')));
      cy.on('mouseover mouseout', 'edge', (event) => event.target.toggleClass('hover', event.type === 'mouseover'));
      const observer = new ResizeObserver(() => { cy.resize(); this.fit(); });
      observer.observe(this.canvas);
      this.watch.signal.addEventListener('abort', () => { observer.disconnect(); cy.destroy(); });
      return cy;
    }

    /* Lays out the graph with springs, in the shape of the canvas; nodes without edges go below. */
    arrange() {
      const {cy} = this;
      const many = cy.nodes().length > 60;
      const lone = cy.nodes().filter((node) => node.degree() === 0);
      const linked = cy.elements().difference(lone);
      linked.layout({name: 'cose', randomize: false, animate: false, fit: false, nodeDimensionsIncludeLabels: true, componentSpacing: 20,
        idealEdgeLength: (edge) => 20 + Math.min(WIDEST, 5 * edge.data('label').length), nodeRepulsion: () => (many ? 40000 : 9000),
        nodeOverlap: 20, gravity: 1, numIter: many ? 500 : 1500}).run();
      const {w, h: high} = linked.boundingBox();
      const shape = cy.width() / cy.height();
      const turned = (w > high) !== (shape > 1);
      const wide = shape / (turned ? high / w : w / high) || 1;
      const [x, y] = wide > 1 ? [Math.min(2, wide), 1] : [1, Math.min(2, 1 / wide)];
      const places = new Map(linked.nodes().map((node) => {
        const at = node.position();
        return [node.id(), turned ? {x: x * at.y, y: y * at.x} : {x: x * at.x, y: y * at.y}];
      }));
      this.separate(linked, places);
      linked.nodes().positions((node) => places.get(node.id()));
      const {x1, x2, y2} = linked.nonempty() ? linked.boundingBox() : {x1: 0, x2: 600, y2: 0};
      const columns = Math.max(1, Math.floor((x2 - x1) / 170));
      lone.positions((node, i) => ({x: x1 + 85 + 170 * (i % columns), y: y2 + 50 + 50 * Math.floor(i / columns)}));
    }

    /* Pushes nodes and edge labels apart until none covers another. */
    separate(drawn, places) {
      const worded = drawn.edges().filter((edge) => edge.style('label'));
      const boxes = drawn.nodes().map((node) => [[node.id(), node.id()], node.outerWidth() + 12, node.outerHeight() + 12])
        .concat(worded.map((edge) => [[edge.source().id(), edge.target().id()], Math.min(WIDEST, 7 * edge.data('label').length) + 12, 24])).map(([ids, w, high]) => ({ends: ids.map((id) => places.get(id)), w, high}));
      const push = ({ends: [one, other]}, axis, by) => { one[axis] += by; if (other !== one) other[axis] += by; };
      for (let round = 0, moved = true; moved && round < 100; round += 1) {
        moved = false;
        for (let i = 0; i < boxes.length; i += 1) {
          for (let j = i + 1; j < boxes.length; j += 1) {
            const {ends: [a, b], w, high} = boxes[i];
            const {ends: [c, d], w: otherW, high: otherHigh} = boxes[j];
            const [x, y] = [(c.x + d.x - a.x - b.x) / 2, (c.y + d.y - a.y - b.y) / 2];
            const [overX, overY] = [(w + otherW) / 2 - Math.abs(x), (high + otherHigh) / 2 - Math.abs(y)];
            if (overX < 0.5 || overY < 0.5) continue;
            const [axis, by] = overX < overY ? ['x', x < 0 ? -overX : overX] : ['y', y < 0 ? -overY : overY];
            push(boxes[i], axis, -by / 2);
            push(boxes[j], axis, by / 2);
            moved = true;
          }
        }
      }
    }

    style() {
      const css = getComputedStyle(this.canvas);
      const [ink, grey, line, card, blue, orange, paleBlue, paleOrange, soft] = ['ink', 'muted', 'line', 'card', 'blue', 'orange',
        'pale-blue', 'pale-orange', 'soft'].map((name) => css.getPropertyValue(`--${name}`).trim());
      const hues = [...Array(8).keys()].map((i) => css.getPropertyValue(`--hue${i}`).trim());
      const lines = (colour, fill, more) => ({'border-color': colour, 'background-color': fill, 'line-color': colour,
        'target-arrow-color': colour, ...more});
      return Object.entries({
        node: {label: 'data(label)', shape: 'round-rectangle', width: 'label', height: 'label', padding: '7px', 'font-size': 14,
          'font-family': css.fontFamily, 'text-valign': 'center', 'text-wrap': 'wrap', 'text-max-width': WIDEST, color: ink,
          'background-color': soft, 'border-width': 1.2, 'border-color': line, 'min-zoomed-font-size': 4},
        'node.plain': {'border-style': 'dashed'},
        edge: {label: this.edges.length <= MOST_WORDED ? 'data(label)' : '', width: 1.5, 'curve-style': 'bezier',
          'target-arrow-shape': 'triangle', 'line-color': line, 'target-arrow-color': line, 'font-size': 12, color: grey,
          'font-family': css.fontFamily, 'text-wrap': 'ellipsis', 'text-max-width': WIDEST, 'text-background-color': card,
          'text-background-opacity': 0.85, 'text-background-padding': 2, 'min-zoomed-font-size': 5},
        ...Object.fromEntries(hues.map((hue, i) => [`.k${i}`, lines(hue, hue, {'background-opacity': 0.25})])),
        '.new': lines(blue, paleBlue), '.chain': lines(orange, paleOrange), '.faint': {opacity: 0.5},
        'edge.chain, edge.hover, edge.near': {width: 3, label: 'data(label)', color: ink}, 'node.chain': {'border-width': 2, 'font-weight': 'bold'},
        '.chosen': {opacity: 1, 'z-index': 9, color: ink}, 'edge.chosen': {width: 4, label: 'data(label)'},
        'node.chosen': {'border-width': 3, 'border-color': ink}, '.later': {display: 'none'},
      }).map(([selector, style]) => ({selector, style}));
    }

    fit() {
      const seen = this.cy?.elements(':visible');
      if (!seen?.length || !this.canvas.clientWidth) return;
      this.cy.fit(seen, 20);
      const [least, most] = [this.canvas.clientWidth < 500 ? 0.7 : 0, 1.2]; // on a phone, names stay readable
      if (this.cy.zoom() > most || this.cy.zoom() < least) this.cy.zoom(Math.min(most, Math.max(least, this.cy.zoom()))).center(seen);
    }

    zoom(by) {
      this.cy?.zoom({level: this.cy.zoom() * by, renderedPosition: {x: this.cy.width() / 2, y: this.cy.height() / 2}});
    }

    remove() {
      this.watch.abort();
    }
  }

  class View {
    constructor(root) {
      this.root = root;
      for (const name of ['head', 'list', 'side', 'tabs', 'detail']) this[name] = h('div', {class: name});
      this.drawing = new Drawing((kind, id) => this.select(kind, id), 'The graph; its triples are listed with the steps', this.tabs);
      root.classList.add('ga');
      const reveal = button({class: 'reveal', 'aria-expanded': false, onclick: () => {
        reveal.setAttribute('aria-expanded', root.classList.toggle('with-graph'));
      }}, 'Graph');
      root.replaceChildren(this.head, reveal, h('div', {class: 'columns'}, this.list, this.side));
      this.side.append(this.drawing.map, this.detail);
      this.detail.setAttribute('aria-live', 'polite');
      root.addEventListener('keydown', (event) => this.press(event));
      this.start('');
    }

    start(question) {
      Object.assign(this, {story: newStory(question), at: 1, follows: true});
      this.draw();
    }

    show(prediction, question = this.story.question) {
      this.story = {...newStory(question), steps: prediction.steps || [], answer: prediction};
      (prediction.passages || []).forEach((passage, i) => addPassage(this.story, passage, i + 1));
      this.at = this.last();
      this.draw();
    }

    event({kind, data}) {
      if (kind === 'answer') return this.show(data);
      const {story} = this;
      const step = story.steps[data.number - 1];
      if (kind === 'search') {
        story.status = `searching “${data.query}”`;
        if (step) step.reformulated = data.query;
        else story.steps.push({number: data.number, query: data.query, passage_ids: []});
      } else if (kind === 'passages') {
        story.status = `reading ${count(data.new.length, 'new passage')}`;
        data.new.forEach((passage) => addPassage(story, passage, passage.label));
        step.retrieved = data.retrieved;
        step.passage_ids = [...step.passage_ids, ...data.new.map((passage) => passage.id)];
      } else {
        story.status = kind === 'answering' ? 'answering' : 'judged';
        if (kind === 'step') story.steps[data.number - 1] = data;
      }
      if (this.follows) this.at = Math.max(1, story.steps.length);
      return this.draw();
    }

    /* Returns the position of the answer, or of the last step while there is no answer. */
    last() {
      return this.story.steps.length + (this.story.answer ? 1 : 0);
    }

    go(n) {
      this.at = Math.max(1, Math.min(n, this.last()));
      this.follows = this.at === this.last();
      this.turn();
      const card = this.list.children[this.at - 1];
      if (card?.getBoundingClientRect().top < 0) card.scrollIntoView();
    }

    press(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches('input, textarea')) return;
      const act = {ArrowRight: () => this.go(this.at + 1), ArrowLeft: () => this.go(this.at - 1), 0: () => this.drawing.fit(),
        '+': () => this.drawing.zoom(1.25), '-': () => this.drawing.zoom(0.8), Escape: this.chosen && (() => this.select(null))}[event.key];
      if (!act) return;
      event.preventDefault();
      event.stopPropagation();
      act();
    }

    remove() {
      this.drawing.remove();
      this.root.replaceChildren();
    }

    /* --- Drawing everything again, after the data has changed. */

    draw() {
      const {question, answer, status, steps, passages} = this.story;
      this.graph = graphOf(this.story);
      this.head.replaceChildren(question && h('h1', {dir: 'auto'}, question), answer ? this.drawAnswer(answer)
        : h('p', {class: status && 'status', role: 'status'}, status));
      this.list.replaceChildren(...steps.map((step) => this.drawStep(step)));
      if (answer) {
        const rest = steps.length ? [] : [...passages.values()].map((passage) => this.passage(passage));
        this.list.append(this.card('✓', answer.answer || 'No answer', [], [this.drawEvidence(answer), rest]));
      }
      const names = [...steps.map((step) => `Step ${step.number}`), ...(answer ? ['Answer'] : [])];
      this.tabs.replaceChildren(...names.map((name, i) => button({onclick: () => this.go(i + 1)}, name)));
      this.root.classList.toggle('no-graph', !this.graph.nodes.size);
      if (this.graph.nodes.size) this.drawing.draw(this.graph);
      this.turn();
    }

    drawAnswer(answer) {
      const cost = [answer.calls && count(answer.calls, 'LM call'), answer.tokens && count(answer.tokens, 'token'),
        LMS[answer.lm] || answer.lm].filter(Boolean).join(' · ');
      return h('div', {class: 'answer'}, h('p', {class: 'line'}, muted('Answer'), h('strong', {dir: 'auto'}, answer.answer || 'none'),
        !answer.answer && answer.guess && muted(`a guess: ${answer.guess}`),
        answer.verdict !== 'answered' && badge('warn', answer.verdict),
        badge(answer.supported ? 'chain' : 'warn', SUPPORT[answer.supported] || (answer.supported ? 'supported' : 'not supported')),
        h('span', {class: 'muted cost'}, cost)), (answer.failures || []).map((text) => h('p', {class: 'trouble'}, text)));
    }

    card(number, title, badges, body) {
      const n = number === '✓' ? this.story.steps.length + 1 : number;
      return h('article', {class: number === '✓' ? 'card final' : 'card'}, h('h2', {}, button({class: 'top', onclick: () => this.go(n)},
        h('span', {class: number === '✓' ? 'number chain' : 'number'}, h('span', {class: 'word'}, number === '✓' ? 'Answer ' : 'Step '), number),
        h('span', {class: 'query', dir: 'auto'}, title), h('span', {class: 'badges'}, badges))), h('div', {class: 'body'}, body));
    }

    drawStep(step) {
      const known = (ids = []) => ids.map((id) => this.story.passages.get(id)).filter(Boolean);
      const fresh = known(step.passage_ids);
      const again = known(step.retrieved).filter((passage) => !fresh.includes(passage));
      const edges = this.graph.edges.filter((edge) => edge.step === step.number);
      const linked = new Set(edges.flatMap((edge) => [edge.head, edge.tail]));
      const lone = [...this.graph.nodes.values()].filter((node) => node.step === step.number && !linked.has(node.name));
      const dropped = Array.isArray(step.dropped) ? step.dropped : [];
      const missing = step.dropped_count || dropped.length;
      const judgement = () => badge(step.judgement === 'sufficient' ? 'good' : '', step.judgement);
      const line = (name, text) => text && h('p', {dir: 'auto'}, h('b', {}, `${name}: `), text);
      const badges = [edges.length > 0 && badge('new', `+${count(edges.length, 'triple')}`),
        missing > 0 && badge('warn', `${missing} dropped`), step.failure && badge('warn', 'failed'), judgement()];
      return this.card(step.number, step.query, badges, [
        step.reformulated && part('Searched instead, because that found nothing new', h('p', {dir: 'auto'}, step.reformulated)),
        part(fresh.length ? `Read (${fresh.length} new)` : 'Read (nothing new)',
          fresh.map((passage) => this.passage(passage, (step.unread || []).includes(passage.id))),
          again.length > 0 && h('p', {}, muted('Found again: '), again.map((passage) => this.chip(passage)))),
        part('Added to the graph', edges.map((edge) => this.triple(edge)), lone.map((node) => this.entity(node.name)),
          (step.attributes || []).map(([name, text]) => line(name, text))),
        part('Dropped', dropped.map((drop) => h('p', {dir: 'auto'}, h('s', {}, drop.item), muted(` ${drop.kind}: ${drop.reason}`))),
          missing > dropped.length && h('p', {}, muted(`${missing - dropped.length} of which the run stores only the number`))),
        part('Judgement', judgement(), step.reasoning && h('p', {dir: 'auto'}, step.reasoning), line('Candidate', step.candidate),
          line('Next', step.next_query), line('Rule', step.rule), step.failure && h('p', {class: 'trouble'}, step.failure))]);
    }

    drawEvidence(answer) {
      const links = (answer.evidence || []).map((link) => {
        const edge = this.graph.edges.find((each) => each.links?.includes(link));
        const passage = this.story.passages.get(link.passage_id);
        return h('li', {}, edge && this.triple(edge), h('blockquote', {class: isTable(link.quote) && 'table', dir: 'auto'}, unmarked(link.quote)),
          passage ? this.chip(passage) : muted(link.title || link.passage_id));
      });
      const claims = (answer.citations || []).map(({holds, claim}) => h('li', {},
        badge(holds ? 'good' : 'warn', holds ? 'held' : 'not held'), ' ', claim));
      return part(links.length ? 'Evidence' : 'No evidence in what was read', h('ol', {}, links), h('ul', {}, claims));
    }

    /* --- Elements that can be selected. */

    triple(edge) {
      return button({class: edge.links ? 'triple on-chain' : 'triple', 'data-triple': edge.id, dir: 'auto',
        onclick: () => this.select('triple', edge.id)}, edge.head, h('span', {class: 'relation'}, edge.relation), edge.tail);
    }

    entity(name) {
      return button({class: 'chip', onclick: () => this.select('entity', name)}, name);
    }

    chip(passage) {
      return button({class: 'chip', onclick: () => this.select('passage', passage.id)}, `[${passage.label}] ${unmarked(passage.title) || passage.id}`);
    }

    passage(passage, unread = false) {
      return h('div', {class: 'passage'}, button({class: 'title', onclick: () => this.select('passage', passage.id)},
        h('span', {class: 'tag'}, passage.label), passage.title ? this.marked(passage, 0, passage.start) : passage.id),
      unread && muted(' did not fit the prompt'),
      h('p', {class: isTable(passage.text) ? 'text table' : 'text', dir: 'auto'}, this.marked(passage, passage.start, passage.length)));
    }

    /* Returns a part of a passage with marks on names, on sentences of triples, and on evidence of the answer. */
    marked(passage, from, to) {
      const spans = [];
      const add = (kind, id, evidence = []) => spans.push(...evidence
        .filter((e) => e.passage === passage.id && e.start < to && e.end > from)
        .map((e) => ({kind, id, start: Math.max(e.start, from), end: Math.min(e.end, to)})));
      for (const node of this.graph.nodes.values()) add('name', '', node.evidence);
      for (const edge of this.graph.edges) add(edge.links ? 'chain' : 'fact', edge.id, edge.evidence);
      for (const link of this.story.answer?.evidence || []) {
        if (link.passage_id === passage.id) add('chain', '', spansOf(passage, link.quote));
      }
      const bounds = [...new Set([from, to, ...spans.flatMap((span) => [span.start, span.end])])].sort((a, b) => a - b);
      return bounds.slice(1).map((end, i) => {
        const inside = spans.filter((span) => span.start <= bounds[i] && end <= span.end);
        const classes = [...new Set(inside.map((span) => span.kind))].join(' ');
        const text = passage.cut(bounds[i], end);
        return inside.length ? h('mark', {class: classes, 'data-of': inside.map((span) => span.id).join(' ')}, text) : text;
      });
    }

    /* --- Changing the step or the selection: elements are kept, so that the keyboard focus stays. */

    turn() {
      [...this.list.children].forEach((card, i) => {
        card.classList.toggle('open', i + 1 === this.at);
        card.querySelector('.top').setAttribute('aria-expanded', i + 1 === this.at);
        card.lastChild.hidden = i + 1 !== this.at;
        this.tabs.children[i].setAttribute('aria-pressed', i + 1 === this.at);
      });
      const keys = this.at > this.story.steps.length ? [['chain', 'the answer and its evidence'], ['', 'the rest of the graph']]
        : [['new', 'added in this step'], ['', 'added before']];
      this.drawing.legend.replaceChildren(...keys.map(([kind, text]) => h('span', {}, h('i', {class: kind}), text)),
        h('span', {class: 'muted keys'}, 'Keys ← → + − 0'));
      this.select(null);
      this.drawing.fit();
    }

    select(kind, id) {
      this.chosen = kind && {kind, id};
      for (const each of this.list.querySelectorAll('.triple')) {
        each.setAttribute('aria-pressed', kind === 'triple' && each.dataset.triple === id);
      }
      for (const each of this.list.querySelectorAll('mark')) {
        each.classList.toggle('chosen', kind === 'triple' && each.dataset.of.split(' ').includes(id));
      }
      const shown = kind ? this.describe(kind, id) : [muted('Choose a triple to read the sentence that states it, a passage to see its triples.')];
      const close = kind && button({class: 'close', 'aria-label': 'Close', onclick: () => this.select(null)}, '×');
      const held = this.detail.contains(document.activeElement);
      this.detail.replaceChildren(...[close, shown].flat(9).filter(Boolean));
      if (held) this.detail.querySelector('button')?.focus();
      this.detail.classList.toggle('empty', !kind);
      this.light();
    }

    /* Returns the description of a selection, shown beside the graph. */
    describe(kind, id) {
      const triples = (wanted) => this.graph.edges.filter(wanted).map((edge) => this.triple(edge));
      const big = (...text) => h('p', {class: 'big', dir: 'auto'}, ...text);
      if (kind === 'entity') {
        const {name, type, attributes = [], aliases = []} = this.graph.nodes.get(id);
        return [big(name), h('p', {}, [type, ...attributes].filter(Boolean).join('; ')),
          aliases.length > 0 && h('p', {class: 'muted'}, `Also: ${aliases.join(', ')}`),
          triples((edge) => edge.head === id || edge.tail === id)];
      }
      if (kind === 'passage') {
        const passage = this.story.passages.get(id);
        const stated = triples((edge) => (edge.evidence || []).some((e) => e.passage === id));
        const known = Object.entries(passage.metadata || {}).map(([name, value]) => `${name}: ${value}`).join(' · ');
        return [this.passage(passage), known && h('p', {class: 'muted'}, known),
          part(`States ${count(stated.length, 'triple')}`, stated, stated.length === 0 && ' ')];
      }
      const edge = this.graph.edges.find((each) => each.id === id);
      const ends = new RegExp(`(${literal(edge.head)}|${literal(edge.tail)})`, 'i');
      const quote = (passageId, text) => {
        const passage = this.story.passages.get(passageId);
        return [text && h('blockquote', {class: passage && isTable(passage.text) && 'table', dir: 'auto'}, text.split(ends).map((piece, i) => i % 2 ? h('b', {}, piece) : piece)),
          passage && h('p', {}, this.chip(passage))];
      };
      const quotes = (edge.evidence || []).map((e) => quote(e.passage, this.story.passages.get(e.passage)?.cut(e.start, e.end)));
      const more = [Number.isFinite(edge.step) && `step ${edge.step}`, edge.time && `time: ${edge.time}`,
        edge.confidence != null && `confidence: ${edge.confidence}`, edge.links && 'evidence of the answer'];
      return [big(edge.head, h('span', {class: 'relation'}, edge.relation), edge.tail),
        quotes.length ? quotes : (edge.links || []).map((link) => quote(link.passage_id, unmarked(link.quote))),
        h('p', {class: 'muted'}, more.filter(Boolean).join(' · '))];
    }

    /* Marks which parts of the graph exist at this step, and which are new, on the chain or selected. */
    light() {
      const {cy} = this.drawing;
      if (!cy || !this.graph.nodes.size) return;
      const {kind, id} = this.chosen || {};
      const atAnswer = this.at > this.story.steps.length;
      const ends = (wanted) => new Set(this.graph.edges.filter(wanted).flatMap((edge) => [edge.head, edge.tail]));
      const isChosen = (edge) => kind === 'triple' ? edge.id === id
        : kind === 'passage' && (edge.evidence || []).some((e) => e.passage === id);
      const [lit, chosen] = [ends((edge) => edge.links), ends(isChosen).add(kind === 'entity' && id)];
      const answer = fold(this.story.answer?.answer || '');
      for (const name of this.graph.nodes.keys()) if (fold(name) === answer) lit.add(name);
      const paint = (drawn, {plain, step}, onChain, picked) => cy.getElementById(drawn).classes([plain && 'plain',
        picked && 'chosen', ...(atAnswer ? [onChain ? 'chain' : lit.size && 'faint'] : [step > this.at && 'later', step === this.at && 'new']),
      ].filter(Boolean));
      cy.batch(() => {
        for (const edge of this.graph.edges) paint(edge.id, edge, edge.links, isChosen(edge));
        for (const [name, node] of this.graph.nodes) paint(`n ${name}`, node, lit.has(name), chosen.has(name));
      });
    }
  }

  return {mount: (element) => new View(element), h, button, badge, muted, part, count, fold, Drawing, LMS, lmName, unmarked};
})();

/* Shows the prediction of the page, if it has one. */
{
  const data = JSON.parse(document.getElementById('ga-data')?.textContent || '{}');
  if (data.prediction) {
    const view = GaView.mount(document.getElementById('ga'));
    view.show(data.prediction, data.question);
    addEventListener('keydown', (event) => view.press(event));
  }
}
