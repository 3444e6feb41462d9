/** Style rules that the pages of both APIs share. */
export const BASE_STYLE = `:root {
  color-scheme: light dark;
  --text: #1a2230;
  --quiet: #515c6b;
  --page: #f5f6f8;
  --card: #ffffff;
  --line: #d5dae1;
  --link: #1d4f91;
  --button: #1d4f91;
  --on-button: #ffffff;
  --good: #17663a;
  --bad: #a11d1d;
  --warn: #8a4b00;
  --open: #465162;
}
@media (prefers-color-scheme: dark) {
  :root {
    --text: #e7ebf1;
    --quiet: #a8b2c0;
    --page: #12161c;
    --card: #1a2029;
    --line: #38414e;
    --link: #9cc3f7;
    --button: #9cc3f7;
    --on-button: #0e1a2a;
    --good: #7ed3a0;
    --bad: #f59a90;
    --warn: #f0b76a;
    --open: #b4bfcd;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0;
  background: var(--page);
  color: var(--text);
  font: 1rem/1.55 system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif;
  overflow-wrap: break-word;
}
a { color: var(--link); text-underline-offset: 0.15em; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; border-radius: 2px; }
main:focus { outline: none; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 0.5rem; background: var(--card); padding: 0.5rem 1rem; z-index: 1; }
.inner, main { max-width: 56rem; margin: 0 auto; padding: 0 1.5rem; }
header { background: var(--card); border-bottom: 1px solid var(--line); padding: 1rem 0 1.25rem; }
.site { margin: 0 0 0.75rem; font-weight: 650; letter-spacing: 0.01em; }
.site a { color: var(--text); text-decoration: none; }
.site a:hover { text-decoration: underline; }
label { display: block; margin-bottom: 0.3rem; color: var(--quiet); font-size: 0.9rem; }
.row { display: flex; gap: 0.5rem; }
input {
  flex: 1;
  min-width: 0;
  font: 1rem ui-monospace, SFMono-Regular, Menlo, monospace;
  padding: 0.6rem 0.75rem;
  color: var(--text);
  background: var(--page);
  border: 1px solid var(--quiet);
  border-radius: 6px;
}
button { font: inherit; cursor: pointer; border-radius: 6px; }
form button {
  padding: 0.6rem 1.4rem;
  font-weight: 600;
  color: var(--on-button);
  background: var(--button);
  border: 1px solid var(--button);
}
main { padding-top: 1.5rem; padding-bottom: 1rem; }
main section { margin: 0 0 2rem; }
h1 { margin: 0; font-size: 1.9rem; line-height: 1.2; }
h2 { margin: 0 0 0.5rem; font-size: 1.15rem; }
p { margin: 0.5rem 0; }
ul { margin: 0; padding-left: 1.2rem; }
li { margin: 0.25rem 0; }
.lead { font-size: 1.125rem; }
code { font: 0.92em ui-monospace, SFMono-Regular, Menlo, monospace; overflow-wrap: anywhere; }
.facts { margin: 0; }
.facts > div {
  display: grid;
  grid-template-columns: 11rem minmax(0, 1fr);
  gap: 0 1rem;
  padding: 0.45rem 0;
  border-top: 1px solid var(--line);
}
dt { color: var(--quiet); }
dd { margin: 0; overflow-wrap: anywhere; }
summary { cursor: pointer; color: var(--link); padding: 0.3rem 0; }
@media (max-width: 44rem) {
  .inner, main { padding-left: 1rem; padding-right: 1rem; }
  main { padding-top: 1rem; }
  h1 { font-size: 1.6rem; }
  .facts > div { grid-template-columns: minmax(0, 1fr); }
  dt { font-size: 0.875rem; }
}
`;
