import { BASE_STYLE } from '../../pages/style.js';

/** The page's style sheet, served from a separate path, so that no inline style is needed. */
export const STYLE = `${BASE_STYLE}main { --tone: var(--open); }
.good { --tone: var(--good); }
.denied, .revoked { --tone: var(--bad); }
.expired { --tone: var(--warn); }
.verdict {
  display: grid;
  grid-template-columns: auto minmax(0, 1fr);
  gap: 0 1.25rem;
  padding: 1.5rem;
  background: var(--card);
  border: 1px solid var(--line);
  border-left: 8px solid var(--tone);
  border-radius: 8px;
}
.verdict.absent, .verdict.open { border-left-style: dashed; }
.verdict h1 { color: var(--tone); }
.verdict .facts { margin-top: 1rem; }
.evidence [role='alert'] { padding: 0.5rem 1rem; color: var(--bad); background: var(--card); border: 2px solid var(--bad); border-radius: 8px; }
.evidence [role='alert']:empty { display: none; }
.evidence form { margin: 0.75rem 0; }
.unproven .good { --tone: var(--open); }
.unproven .verdict { grid-template-columns: minmax(0, 1fr); border-left-style: dashed; }
.unproven .mark { visibility: hidden; }
.unproven .verdict > .mark { display: none; }
.mark { fill: none; stroke: var(--tone); stroke-width: 3; stroke-linecap: round; stroke-linejoin: round; }
.tag {
  display: inline-block;
  vertical-align: 0.15em;
  margin-right: 0.25rem;
  padding: 0.1rem 0.55rem;
  font-size: 1rem;
  font-weight: 650;
  color: var(--text);
  border: 2px dashed var(--quiet);
  border-radius: 6px;
}
.status { font-weight: 700; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(18rem, 1fr)); gap: 0 2rem; }
.copy {
  margin-left: 0.35rem;
  padding: 0.1rem 0.6rem;
  font-size: 0.85rem;
  color: var(--link);
  background: var(--card);
  border: 1px solid var(--line);
}
.copy:hover { border-color: var(--link); }
.chain { display: flex; flex-wrap: wrap; gap: 0.75rem 0; margin: 1rem 0 0; padding: 0; list-style: none; counter-reset: link; }
.chain li { position: relative; flex: 1 1 8rem; margin: 0; padding: 2.6rem 0.75rem 0 0; counter-increment: link; }
.chain li::before {
  content: counter(link);
  position: absolute;
  top: 0;
  left: 0;
  width: 2rem;
  height: 2rem;
  border: 2px solid var(--text);
  border-radius: 50%;
  background: var(--card);
  font-weight: 650;
  line-height: 1.75rem;
  text-align: center;
}
.chain li::after { content: ''; position: absolute; top: 1rem; left: 2.4rem; right: 0.4rem; border-top: 2px solid var(--text); }
.chain li:last-child::after { display: none; }
.chain .missing::before { border: 2px dashed var(--quiet); background: none; color: var(--quiet); font-weight: 400; }
.chain .missing::after, .chain .reached:has(+ .missing)::after { border-top: 2px dashed var(--quiet); }
.chain .name { display: block; font-weight: 600; line-height: 1.3; }
.chain .missing .name { font-weight: 400; color: var(--quiet); }
.chain .state { display: block; color: var(--quiet); font-size: 0.875rem; }
.chain .state b { color: var(--tone); }
.chain .revoked::before, .chain .expired::before, .chain .open::before, .chain .absent::before { border-color: var(--tone); color: var(--tone); }
.members { margin: 0; padding: 0; list-style: none; }
.members li {
  display: grid;
  grid-template-columns: 1.75rem 13.5rem minmax(0, 1fr);
  gap: 0 0.75rem;
  align-items: center;
  margin: 0;
  padding: 0.5rem 0;
  border-top: 1px solid var(--line);
}
.members .mark { width: 1.75rem; height: 1.75rem; }
.members .number { color: var(--quiet); }
.members .name { font-weight: 600; color: var(--tone); }
.members li.more, .history li.more { display: block; }
.history { margin: 0; padding: 0; list-style: none; }
.history li { position: relative; display: grid; grid-template-columns: 17.5rem minmax(0, 1fr); gap: 0 1rem; margin: 0; padding: 0.3rem 0 0.3rem 1.1rem; border-left: 2px solid var(--line); }
.history li::before { content: ''; position: absolute; left: -6px; top: 0.85rem; width: 10px; height: 10px; border-radius: 50%; background: var(--quiet); }
.history li.more { padding: 0; border-left: 0; }
.history li.more::before { display: none; }
.history summary { padding-left: 1.1rem; border-left: 2px dotted var(--line); }
.history .turn::before { background: var(--tone); outline: 2px solid var(--tone); outline-offset: 2px; }
.when { color: var(--quiet); }
.detail { display: block; color: var(--quiet); font-size: 0.875rem; }
.links { display: flex; flex-wrap: wrap; gap: 0.25rem 1.5rem; padding: 0; list-style: none; }
.share { display: flex; gap: 2rem; align-items: flex-start; justify-content: space-between; }
.share > div { flex: 1; min-width: 0; }
.qr { width: 9rem; height: 9rem; flex: none; border-radius: 6px; }
footer { border-top: 1px solid var(--line); padding: 1.5rem 0 2.5rem; font-size: 0.9rem; color: var(--quiet); }
footer h2 { font-size: 0.95rem; color: var(--text); }
footer .facts > div { padding: 0.15rem 0; border: 0; }
@media (max-width: 44rem) {
  .verdict { grid-template-columns: minmax(0, 1fr); padding: 1.1rem 1rem; border-left-width: 6px; }
  .mark { width: 44px; height: 44px; margin-bottom: 0.6rem; }
  .copy { display: block; margin: 0.3rem 0; padding: 0.35rem 0.9rem; }
  .copy[hidden] { display: none; }
  .chain { display: block; }
  .chain li { padding: 0.3rem 0 0.9rem 2.9rem; min-height: 3.2rem; }
  .chain li::after { top: 2.2rem; bottom: 0.2rem; left: 0.95rem; right: auto; border-top: 0; border-left: 2px solid var(--text); }
  .chain li.missing::after, .chain .reached:has(+ .missing)::after { border-top: 0; border-left: 2px dashed var(--quiet); }
  .chain li { padding-top: 0; }
  .history li { grid-template-columns: minmax(0, 1fr); }
  .members li { grid-template-columns: 1.75rem minmax(0, 1fr); }
  .members a { grid-column: 2; }
  .links { display: block; }
  .links a { display: inline-block; padding: 0.25rem 0; }
  .share { display: block; }
  .qr { width: 12rem; height: 12rem; margin-top: 1rem; }
}
@media (forced-colors: active) {
  .mark { stroke: CanvasText; }
}
@media print {
  :root { --text: #000; --quiet: #333; --page: #fff; --card: #fff; --line: #999; --link: #000; --good: #000; --bad: #000; --warn: #000; --open: #000; }
  form, .copy, .skip, details { display: none; }
  .more details { display: block; }
  .more details::details-content { content-visibility: visible; block-size: auto; }
  header { border: 0; padding: 0; }
  .verdict { border: 2px solid #000; border-left-width: 8px; }
  section { break-inside: avoid; }
}
`;

export const SCRIPT = `'use strict';
(() => {
  const live = document.getElementById('live');

  // Copies without navigator.clipboard, which exists only in secure contexts.
  const copyBySelection = (text) => {
    const area = document.createElement('textarea');
    area.value = text;
    area.className = 'unseen';
    document.body.append(area);
    area.select();
    const done = document.execCommand('copy');
    area.remove();
    return done;
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      return copyBySelection(text);
    }
  };

  for (const button of document.querySelectorAll('button.copy')) {
    button.hidden = false;
    const label = button.firstChild;
    button.addEventListener('click', async () => {
      const done = await copy(button.dataset.copy);
      button.focus();
      label.textContent = done ? 'Copied ' : 'Not copied ';
      live.textContent = button.dataset.what + (done ? ' copied' : ' could not be copied');
      setTimeout(() => {
        label.textContent = 'Copy ';
        live.textContent = '';
      }, 2000);
    });
  }
})();
`;

export const ICON = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="7" fill="#1d4f91"/><path d="M9 16.5l5 5 9-11" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round" stroke-linejoin="round"/></svg>
`;
