/* A corpus graph from ga_dspy.viewer.graph_data: search, neighbourhoods, communities, filters and paths.
 *
 * The fragment of the address is empty for the most central entities, #A for an entity, #A/B for the shortest paths
 * between two, #/3 for a community. Entities are ordered by centrality; if there are too many, the first are shown.
 */
'use strict';
{
  const {h, button, muted, part, count, fold, unmarked, Drawing} = GaView;
  const MOST = 150; // entities drawn
  const CENTRAL = 3; // entities in the centre of the first drawing
  const FIRST = 40; // entities of the first drawing
  const LISTED = 25; // items of a list above the button "show all"
  const WORDED = 40; // relations; a selected entity with more shows no labels
  const COLOURS = 8;
  const plain = (text) => fold(text.normalize('NFKD').replace(/\p{M}/gu, ''));
  const number = (n) => n.toLocaleString('en');
  const link = (...places) => `#${places.map(encodeURIComponent).join('/')}`;

  function explore(root, {title, graph: {entities, relations, communities, passages, quotes}}, ...before) {
    const byPlace = new Map(entities.map((entity) => [encodeURIComponent(entity.name), entity]));
    entities.forEach((entity, at) => Object.assign(entity, {at, edges: [],
      words: `\n${[entity.name, ...(entity.aliases || [])].map(plain).join('\n')}\n`}));
    const source = (at) => Object.values(passages[at]).join(' · ');
    const edges = relations.map((relation, i) => {
      const [one, other] = [entities[relation.head], entities[relation.tail]];
      const cited = [...new Set((relation.quotes || []).map((at) => quotes[at][0]))];
      const edge = {...relation, id: `t${i}`, one, other, head: one.name, tail: other.name,
        says: {relation: plain(relation.relation), time: plain(relation.time || ''), source: plain(cited.map(source).join('\n'))}};
      for (const end of new Set([one, other])) end.edges.push(edge);
      return edge;
    });
    const edgeOf = (id) => edges[id.slice(1)];
    const members = communities.map(() => []);
    for (const entity of entities) members[entity.community]?.push(entity);
    const titleOf = (at) => communities[at].title || members[at].slice(0, 2).map((entity) => entity.name).join(', ');
    const slots = Array(COLOURS).fill(-1); // the community of each colour
    let hops = 1;
    let shown = [];
    let focus = []; // the entities that the address names

    /* --- Filters by a part of the text; a time may also be a range of years. */

    const filters = [['type', entities.map((entity) => entity.type)], ['relation', edges.map((edge) => edge.relation)],
      ['source', passages.flatMap((passage) => passage.source || passage.title)], ['time', edges.map((edge) => edge.time)]]
      .map(([name, values]) => {
        const counts = new Map();
        for (const value of values.filter(Boolean)) counts.set(value, (counts.get(value) || 0) + 1);
        const common = [...counts].sort((a, b) => b[1] - a[1]).slice(0, 100);
        const input = h('input', {type: 'search', list: `ga-${name}`, placeholder: name === 'time' ? 'such as 1980 or 1980-1990' : `any ${name}`, oninput: () => narrow()});
        return {name, input, elements: common.length > 0 && [h('label', {}, muted(name), input),
          h('datalist', {id: `ga-${name}`}, common.map(([value, n]) => h('option', {value}, number(n))))]};
      });

    function narrow() {
      const sought = Object.fromEntries(filters.map(({name, input}) => [name, plain(input.value)]));
      const [, from, to] = sought.time.match(/^(\d{3,4}) ?[-–] ?(\d{3,4})$/) || [];
      const inTime = ({time}) => from ? (time.match(/\d{3,4}/g) || []).some((year) => +from <= +year && +year <= +to) : time.includes(sought.time);
      for (const edge of edges) edge.fits = inTime(edge.says) && edge.says.relation.includes(sought.relation) && edge.says.source.includes(sought.source);
      for (const entity of entities) entity.fits = plain(entity.type || '').includes(sought.type);
      const on = filters.filter(({input}) => input.value.trim()).length;
      narrowed.textContent = on ? ` (${on} on)` : '';
      show();
    }

    const far = (edge, entity) => edge.one === entity ? edge.other : edge.one;
    const fitting = (entity) => entity.edges.filter((edge) => edge.fits && far(edge, entity).fits);
    /* Unrelated entities share dates and numbers, so no path leads through one. */
    const beside = (entity) => entity.value && !focus.includes(entity) ? [] : fitting(entity).map((edge) => far(edge, entity));

    /* Returns the entities within some hops, nearest first, then most central first. */
    function around(starts, most) {
      const found = new Set(starts);
      let ring = starts;
      for (let hop = 0; hop < most; hop += 1) {
        ring = [...new Set(ring.flatMap(beside))].filter((entity) => !found.has(entity)).sort((a, b) => a.at - b.at);
        ring.forEach((entity) => found.add(entity));
      }
      return [...found];
    }

    /* Returns the relations of all shortest paths by step; none if the two are not connected. */
    function steps(from, to) {
      const distance = new Map([[to, 0]]);
      for (let ring = [to]; ring.length && !distance.has(from);) {
        const next = new Set(ring.flatMap(beside).filter((entity) => !distance.has(entity)));
        next.forEach((entity) => distance.set(entity, distance.get(ring[0]) + 1));
        ring = [...next];
      }
      const found = [];
      for (let ring = [from], left = distance.get(from); left > 0; left -= 1) {
        const nearer = (edge, entity) => distance.get(far(edge, entity)) === left - 1 && (left === 1 || !far(edge, entity).value);
        const step = ring.flatMap((entity) => fitting(entity).filter((edge) => nearer(edge, entity)));
        ring = [...new Set(step.flatMap(({one, other}) => [one, other]))].filter((entity) => distance.get(entity) === left - 1);
        found.push([...new Set(step)]);
      }
      return found;
    }

    /* --- The page. */

    const results = h('div', {class: 'results'});
    const search = h('input', {type: 'search', placeholder: 'Search names and aliases', 'aria-label': 'Search names and aliases', autocomplete: 'off', oninput: () => find()});
    const status = h('p', {class: 'muted', role: 'status'});
    const detail = h('section', {class: 'detail', 'aria-label': 'Details'});
    const narrowed = h('span');
    const drawing = new Drawing(pick, 'The graph; its entities and relations are listed beside it', status);
    root.classList.add('ga', 'explore');
    root.replaceChildren(h('header', {}, h('h1', {dir: 'auto'}, title),
      h('p', {class: 'muted'}, [[entities.length, 'entities'], [edges.length, 'relations'], [passages.length, 'passages']].map(([n, what]) => `${number(n)} ${what}`).join(' · ')), before),
    h('div', {class: 'find', role: 'search'}, search, results,
      h('details', {open: innerWidth > 820}, h('summary', {}, 'Filters', narrowed), h('div', {class: 'filters'}, filters.map(({elements}) => elements)))),
    h('div', {class: 'columns'}, drawing.map, detail));

    function find() {
      const sought = plain(search.value);
      const forms = [`\n${sought}\n`, `\n${sought}`, ` ${sought}`, sought];
      const ranked = forms.map(() => []);
      if (sought) for (const entity of entities) ranked[forms.findIndex((form) => entity.words.includes(form))]?.push(entity);
      const found = ranked.flat();
      const [from] = focus;
      results.replaceChildren(...found.slice(0, LISTED).map((entity) => h('div', {}, name(entity, muted(describe(entity))),
        from && from !== entity && h('a', {class: 'chip', href: link(from.name, entity.name)}, `path from ${from.name}`))));
      if (sought) results.append(h('p', {class: 'muted', role: 'status'}, found.length > LISTED ? `${LISTED} of ${number(found.length)} names` : found.length ? '' : 'No entity has this name.'));
    }
    const describe = ({type, aliases = []}) => [type, aliases.length && `also ${aliases.slice(0, 4).join(', ')}`].filter(Boolean).map((text) => ` · ${text}`).join('');
    const name = (entity, ...more) => h('a', {class: 'name', dir: 'auto', href: link(entity.name)}, entity.name, more);

    /* Draws and describes what the address names. */
    function show(fits = true) {
      const places = location.hash.slice(1).split('/');
      focus = places.map((place) => byPlace.get(place)).filter(Boolean);
      const [from, to] = focus;
      const group = places[0] === '' && places[1] && members[Number(places[1])];
      const isNarrowed = narrowed.textContent !== '';
      let path = [];
      let every = [];
      let text = '';
      if (group) {
        every = group.filter((entity) => entity.fits);
        text = `in the community ${titleOf(places[1])}`;
      } else if (to) {
        path = steps(from, to);
        every = [...new Set([from, to, ...path.flat().flatMap(({one, other}) => [one, other])])];
        text = path.length ? `on the shortest paths, of ${count(path.length, 'relation')}` : `that nothing connects${isNarrowed ? ' under these filters' : ''}`;
      } else if (from) {
        every = around([from], hops);
        text = `within ${count(hops, 'hop')} of ${from.name}`;
      } else {
        const linked = entities.filter((entity) => entity.fits && fitting(entity).length);
        const starts = isNarrowed || linked.length <= FIRST ? linked.slice(0, MOST) : linked.slice(0, CENTRAL);
        every = around(starts, 1);
        text = isNarrowed ? 'that meet the filters' : starts.length < linked.length ? `around the ${CENTRAL} most central entities` : 'with relations';
      }
      shown = every.slice(0, group || from || isNarrowed ? MOST : FIRST);
      const own = from && !to ? 1 : 0; // an entity is not its own neighbour
      const all = `${count(every.length - own, own ? 'neighbour' : 'node')} ${text}`;
      status.textContent = shown.length < every.length ? `showing ${shown.length - own} of ${all}; filter to see others` : all;
      const nodes = new Map(shown.map((entity) => [entity.name, {name: entity.name, plain: entity.value}]));
      const within = path.length ? path.flat() : edges.filter((edge) => edge.fits && nodes.has(edge.head) && nodes.has(edge.tail));
      drawing.draw({nodes, edges: within});
      colour();
      mark(to ? [from, to] : focus, (edge) => path.length && 'chain');
      if (fits) drawing.fit();
      if (group) panel(titleOf(places[1]), h('p', {}, communities[places[1]].text), part('Entities', few(group, (entity) => h('div', {}, name(entity, muted(describe(entity)))))));
      else if (to) panel(`${from.name} → ${to.name}`, h('p', {class: 'muted'}, all), h('ol', {}, path.map((step) => h('li', {}, few(step, fact)))));
      else if (from) pick('entity', from.name);
      else panel('Most central', few(entities.slice(0, 200).filter((entity) => entity.fits), (entity) => h('div', {}, name(entity, muted(describe(entity))))),
        part('Communities', few(members.map((_, at) => at).filter((at) => members[at].length), (at) => h('div', {}, h('a', {href: link('', at)}, titleOf(at)), muted(` · ${number(members[at].length)}`)))));
    }

    /* Gives each of the largest communities in the drawing a colour, which it keeps while it is drawn. */
    function colour() {
      const sizes = new Map();
      for (const {community: at} of shown) if (at != null) sizes.set(at, (sizes.get(at) || 0) + 1);
      const largest = [...sizes.keys()].sort((a, b) => sizes.get(b) - sizes.get(a)).slice(0, COLOURS);
      slots.forEach((at, slot) => { if (!largest.includes(at)) slots[slot] = -1; });
      for (const at of largest) if (!slots.includes(at)) slots[slots.indexOf(-1)] = at;
      drawing.legend.replaceChildren(...largest.map((at) => h('a', {href: link('', at)}, h('i', {class: `k${slots.indexOf(at)}`}), titleOf(at))),
        sizes.size > largest.length ? h('span', {}, h('i'), 'other communities') : '');
    }

    /* Colours entities by community, and highlights the chosen entities and relations. */
    function mark(chosen, classOf) {
      const {cy} = drawing;
      cy.batch(() => {
        for (const entity of shown) {
          const slot = slots.indexOf(entity.community ?? NaN);
          cy.getElementById(`n ${entity.name}`).classes([entity.value && 'plain', slot >= 0 && `k${slot}`, chosen.includes(entity) && 'chosen'].filter(Boolean));
        }
        cy.edges().forEach((drawn) => { drawn.classes(classOf(edgeOf(drawn.id())) || ''); });
      });
    }

    /* Highlights and describes what was clicked; a click on the background restores what the address names. */
    function pick(kind, id) {
      const edge = kind === 'triple' && edgeOf(id);
      const entity = kind === 'entity' && byPlace.get(encodeURIComponent(id));
      if (edge) {
        mark([edge.one, edge.other], (each) => each === edge && 'chosen');
        panel('Relation', fact(edge));
      } else if (entity) {
        mark([entity], (each) => entity.edges.length <= WORDED && (each.one === entity || each.other === entity) && 'near');
        describeEntity(entity);
      } else show(false);
    }

    function describeEntity(entity) {
      const {type, aliases = [], attributes = [], community, passages: stated = []} = entity;
      const own = entity.edges.filter((edge) => edge.fits && far(edge, entity).fits).sort((a, b) => (a.one !== entity) - (b.one !== entity));
      const hidden = entity.edges.length - own.length;
      const hop = (n) => button({'aria-pressed': String(focus[0] === entity && !focus[1] && hops === n), onclick: () => {
        hops = n;
        if (location.hash !== link(entity.name)) location.hash = link(entity.name);
        else show();
        detail.querySelector('.hops [aria-pressed="true"]')?.focus();
      }}, n);
      panel(entity.name, h('p', {}, [type, ...attributes].filter(Boolean).join('; ')), aliases.length > 0 && h('p', {class: 'muted'}, `Also: ${aliases.join(', ')}`),
        community != null && h('p', {}, muted('Community: '), h('a', {href: link('', community)}, titleOf(community))),
        h('p', {class: 'hops', role: 'group', 'aria-label': 'Hops'}, muted('Neighbourhood, hops: '), [1, 2, 3].map(hop)),
        focus[0] === entity && h('p', {class: 'muted'}, 'Search another entity to find the path to it.'),
        part(count(own.length, 'relation'), few(own, fact), hidden > 0 && muted(`${number(hidden)} more do not meet the filters`)),
        part(count(stated.length, 'passage'), few(stated, (at) => h('p', {dir: 'auto'}, source(at)))));
    }

    /* Returns a relation with its quotes. */
    function fact(edge) {
      const more = [edge.time && `time: ${edge.time}`, edge.confidence != null && `confidence: ${edge.confidence}`].filter(Boolean).join(' · ');
      return h('div', {class: 'fact'}, h('p', {dir: 'auto'}, name(edge.one), h('span', {class: 'relation'}, edge.relation), name(edge.other)), more && h('p', {class: 'muted'}, more),
        (edge.quotes || []).map((at) => [quotes[at][1] && h('blockquote', {dir: 'auto'}, unmarked(quotes[at][1])), h('p', {class: 'muted source', dir: 'auto'}, source(quotes[at][0]))]),
        (edge.contradicts || []).map((at) => h('p', {class: 'trouble'}, `contradicts: ${edges[at].head} ${edges[at].relation} ${edges[at].tail}`)));
    }

    /* Returns the first of many items, and a button that shows the rest. */
    function few(items, make) {
      const rest = button({class: 'chip', onclick: () => {
        const more = items.slice(LISTED).map(make);
        rest.replaceWith(...more);
        more[0].querySelector('a')?.focus(); // keeps the keyboard focus in the list
      }}, `show all ${number(items.length)}`);
      return [items.slice(0, LISTED).map(make), items.length > LISTED && rest];
    }

    function panel(heading, ...content) {
      detail.replaceChildren(...[h('h2', {class: 'big', dir: 'auto', tabindex: -1}, heading), content].flat(9).filter(Boolean));
      detail.scrollTop = 0;
    }

    addEventListener('hashchange', () => {
      search.value = '';
      find();
      show();
      detail.querySelector('h2').focus({preventScroll: true});
    });
    addEventListener('keydown', (event) => {
      const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
      const links = [search, ...results.querySelectorAll('a.name')];
      const at = links.indexOf(document.activeElement);
      if (event.key === '/' && !event.target.matches('input')) search.focus();
      else if (event.key === 'Escape' && !event.target.value) location.hash = '';
      else if (event.key === 'Enter' && at === 0) links[1]?.click();
      else if (step && at >= 0) links[Math.max(0, Math.min(links.length - 1, at + step))].focus();
      else return;
      event.preventDefault();
    });
    narrow();
  }

  const root = document.getElementById('ga');
  const data = JSON.parse(document.getElementById('ga-data').textContent);

  /* Loads the caller's graph from the service; a page written to a file contains its graph. */
  async function load(key) {
    root.replaceChildren(h('p', {class: 'status', role: 'status'}, 'loading the graph'));
    const reply = await fetch('/graph.json', {headers: key ? {'X-API-Key': key} : {}});
    const found = await reply.json();
    if (reply.ok) return explore(root, {title: 'Knowledge graph', graph: found}, h('a', {href: '/'}, 'Ask a question'));
    const input = h('input', {type: 'password', 'aria-label': 'API key', placeholder: 'API key', autocomplete: 'off', required: true});
    const open = (event) => { event.preventDefault(); load(input.value).catch(fail); };
    return fail({message: found.detail}, reply.status === 401 && h('form', {class: 'ask', onsubmit: open}, input, h('button', {class: 'go'}, 'Open')));
  }
  const fail = ({message}, form) => root.replaceChildren(h('p', {class: 'trouble', role: 'alert'}, message), form || '');

  if (data.graph) explore(root, data);
  else load().catch(fail);
}
