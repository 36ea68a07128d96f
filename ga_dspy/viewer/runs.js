/* The questions of a run, or of two runs side by side: a list with filters, and a page per question. */
'use strict';
{
  const {h, badge, muted, count, LMS} = GaView;
  const {runs, rows, kinds, title, p} = JSON.parse(document.getElementById('ga-data').textContent);
  const root = document.getElementById('ga');
  const two = runs.length > 1;
  const flip = ([one, other]) => two && one.right !== other.right && (other.right ? 'gained' : 'lost');
  const filters = [['all', '', () => true],
    ...(two ? [['flipped to right', `only ${runs[1].name} is right`, (row) => flip(row.results) === 'gained'],
      ['flipped to wrong', `only ${runs[0].name} is right`, (row) => flip(row.results) === 'lost']] : []),
    ['right', 'the answer contains an accepted answer', (row) => row.results.every((result) => result.right)],
    ...Object.entries(kinds).map(([kind, about]) => [kind, about, (row) => row.results.some((result) => result.kind === kind)])];
  let chosen = filters[0];
  let views = [];
  let latest = '';

  const search = h('input', {type: 'search', placeholder: 'Search the questions', 'aria-label': 'Search the questions', oninput: () => list()});
  const chips = filters.map((filter) => {
    const n = rows.filter(filter[2]).length;
    return h('button', {type: 'button', title: filter[1], disabled: n === 0, onclick: () => { chosen = filter; list(); }}, filter[0], muted(` ${n}`));
  });
  const about = h('p', {class: 'muted'});
  const body = h('div');
  const seen = () => rows.filter((row) => chosen[2](row) && row.question.toLowerCase().includes(search.value.toLowerCase()));
  const link = (row) => `#${encodeURIComponent(row.id)}`;
  const accepted = (row) => h('p', {class: 'muted'}, 'Accepted: ', row.gold.join(' / '), row.type && ` · ${row.type}`);
  const kind = ({right, kind: name}) => badge(right ? 'good' : 'warn', name || 'right');

  function scores() {
    const mean = (values) => values.reduce((sum, value) => sum + (value || 0), 0) / Math.max(1, values.length);
    const cells = (results) => [`${(100 * mean(results.map((r) => r.right))).toFixed(1)} %`, (100 * mean(results.map((r) => r.f1))).toFixed(1),
      mean(results.map((r) => r.prediction.calls)).toFixed(1), Math.round(mean(results.map((r) => r.prediction.tokens))).toLocaleString('en')];
    return h('table', {class: 'scores'}, h('tr', {}, ['program', 'right', 'F1', 'LM calls', 'tokens'].map((name) => h('th', {}, name))),
      runs.map((run, i) => h('tr', {}, h('th', {}, run.name), cells(rows.map((row) => row.results[i])).map((text) => h('td', {}, text)))));
  }

  function list() {
    chips.forEach((chip, i) => chip.setAttribute('aria-pressed', filters[i] === chosen));
    about.textContent = chosen[1];
    body.replaceChildren(...seen().map((row) => h('a', {class: `row card ${flip(row.results) || ''}`, href: link(row)},
      h('div', {}, h('span', {class: 'query', dir: 'auto'}, row.question), accepted(row)),
      row.results.map((result, i) => h('div', {class: 'verdict', 'data-run': two && runs[i].name, title: kinds[result.kind]}, kind(result),
        h('span', {dir: 'auto'}, result.prediction.answer || '(no answer)'), !result.right && muted(`F1 ${(100 * result.f1).toFixed(0)}`))))));
    if (!body.children.length) body.append(muted('No question matches.'));
  }

  function overview() {
    views = [];
    root.className = two ? 'two' : '';
    root.replaceChildren(h('h1', {}, runs.map((run) => run.name).join(' beside ')),
      h('p', {class: 'muted'}, [title, count(rows.length, 'question'), ...new Set(runs.map((run) => LMS[run.lm] || run.lm))].join(' · '),
        p != null && ` · F1 compared by a paired permutation test: p = ${p.toFixed(3)}`),
      scores(), h('div', {class: 'choose'}, h('div', {role: 'group', 'aria-label': 'Filter'}, chips), search), about,
      two ? h('div', {class: 'row names', 'aria-hidden': 'true'}, muted(''), runs.map((run) => muted(run.name))) : '', body);
    list();
  }

  function open(row) {
    const shown = seen();
    const at = shown.indexOf(row);
    const next = (other, text) => other && h('a', {href: link(other)}, text);
    const panes = row.results.map((result, i) => h('section', {class: 'pane'}, h('h2', {}, two && `${runs[i].name} `, kind(result),
      result.kind && muted(` ${kinds[result.kind]}`)), h('div')));
    root.replaceChildren(h('nav', {class: 'choose'}, h('a', {href: '#'}, '← all questions'),
      h('span', {}, next(shown[at - 1], '‹ previous'), ' \u2003 ', next(shown[at + 1], 'next ›'))),
    h('h1', {dir: 'auto'}, row.question), accepted(row), h('div', {class: 'panes'}, panes));
    views = row.results.map((result, i) => {
      const view = GaView.mount(panes[i].lastChild);
      view.show(result.prediction, '');
      return view;
    });
    scrollTo(0, 0);
  }

  function route() {
    views.forEach((view) => view.remove());
    const row = rows.find((each) => link(each) === location.hash);
    if (row) open(row);
    else overview();
    if (!row && latest) [...body.children].find((each) => each.hash === latest)?.focus();
    latest = location.hash;
  }
  addEventListener('hashchange', route);
  /* Handles keys that no view has handled: in the list, or for all views at once. */
  addEventListener('keydown', (event) => {
    const links = [...body.children];
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (event.key === 'Escape') location.hash = '';
    else if (views.length) views.forEach((view) => view.press(event));
    else if (step) {
      event.preventDefault();
      links[Math.max(0, Math.min(links.length - 1, links.indexOf(document.activeElement) + step))]?.focus?.();
    }
  });
  route();
}
