import { type ProblemTable, COMPONENT, type OpenApiDocument } from '../openapi/types.js';
import { BASE_STYLE } from '../pages/style.js';
import { codeBlock, html, prose, table, type Html } from './html.js';
import { fieldsOf, operationSection, type ReaderText } from './operation.js';

/** Allows only the page's own style sheet, and no scripts. */
export const PAGE_POLICY =
  "default-src 'none'; style-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

export function renderDocs(document: OpenApiDocument, text: ReaderText): string {
  const { info, tags } = document;
  const { guide, problems, shell } = text;
  const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({
      method: method.toUpperCase(),
      path,
      operation,
    })),
  );
  const groups = tags.map((tag) => ({
    ...tag,
    operations: operations.filter(({ operation }) => operation.tags.includes(tag.name)),
  }));
  const page = html`<!doctype html>
    <html lang="en">
      <head>
        <meta charset="utf-8" />
        <meta name="viewport" content="width=device-width, initial-scale=1" />
        <meta name="color-scheme" content="light dark" />
        <title>${info.title}</title>
        <link rel="stylesheet" href="/docs/style.css" />
      </head>
      <body>
        <a class="skip" href="#main">Skip to content</a>
        <header>
          <h1>${info.title}</h1>
          <p>${info.summary} Also available as <a href="/openapi.json">OpenAPI 3.1</a>.</p>
        </header>
        <div class="layout">
          <nav aria-label="Contents">
            <h2>Contents</h2>
            <ul>
              <li><a href="#start">Getting started</a></li>
              ${guide.map(({ id, title }) => html`<li><a href="#${id}">${title}</a></li>`)}
              <li><a href="#codes">All error codes</a></li>
            </ul>
            ${groups.map(
              ({ name, operations }) =>
                html`<h3>${name}</h3>
                  <ul>
                    ${operations.map(
                      ({ method, operation }) =>
                        html`<li>
                          <a href="#${operation.operationId}"
                            ><span class="method ${method.toLowerCase()}">${method}</span>
                            ${operation.summary}</a
                          >
                        </li>`,
                    )}
                  </ul>`,
            )}
            <ul>
              <li><a href="#schemas">Documents</a></li>
            </ul>
          </nav>
          <main id="main">
            <section id="start">
              <h2>Getting started</h2>
              <p>${prose(shell.about)}</p>
              ${codeBlock(shell.setup, 'Shell command')}
            </section>
            ${guide.map(
              (section) =>
                html`<section id="${section.id}">
                  <h2>${section.title}</h2>
                  ${section.text.map((one) => html`<p>${prose(one)}</p>`)}
                </section>`,
            )}
            ${codesSection(problems)}
            ${groups.map(
              ({ name, description, operations }) =>
                html`<section>
                  <h2>${name}</h2>
                  <p>${description}</p>
                  ${operations.map((call) => operationSection(call, document, text))}
                </section>`,
            )}
            ${schemasSection(document)}
          </main>
        </div>
      </body>
    </html> `;
  return page.text;
}

function codesSection(problems: ProblemTable): Html {
  const rows = Object.entries(problems)
    .sort(([, [a]], [, [b]]) => a - b)
    .map(
      ([code, [status, title]]) =>
        html`<tr>
          <td>${status}</td>
          <th scope="row"><code>${code}</code></th>
          <td>${title}.</td>
        </tr>`,
    );
  return html`<section id="codes">
    <h2>All error codes</h2>
    ${table('All error codes', ['Status', 'Code', 'Meaning'], rows)}
  </section>`;
}

function schemasSection({ components: { schemas } }: OpenApiDocument): Html {
  const documents = Object.entries(schemas).filter(
    ([, schema]) => schema['type'] === 'object' || 'oneOf' in schema || 'anyOf' in schema,
  );
  return html`<section id="schemas">
    <h2>Documents</h2>
    ${documents.map(
      ([id]) =>
        html`<section id="schema-${id}">
          <h3>${id}</h3>
          ${fieldsOf({ $ref: COMPONENT + id }, schemas)}
        </section>`,
    )}
  </section>`;
}

/** The style sheet of /docs is a separate resource, so that the CSP can forbid inline styles. */
export const STYLE = `${BASE_STYLE}
html { scroll-padding-top: 1rem; }
header { padding: 2rem 1.5rem 1rem; }
header p { margin: 0.25rem 0 0; color: var(--quiet); }
.layout { display: grid; grid-template-columns: 19rem minmax(0, 1fr); }
nav {
  position: sticky;
  top: 0;
  align-self: start;
  max-height: 100vh;
  overflow-y: auto;
  padding: 1rem 1rem 2rem 1.5rem;
  border-right: 1px solid var(--line);
  font-size: 0.9rem;
}
nav h2, nav h3 { font-size: 0.8rem; margin: 1.2rem 0 0.3rem; color: var(--quiet); }
nav ul { list-style: none; padding: 0; }
nav li, main section { margin: 0; }
nav a { display: block; padding: 0.2rem 0; text-decoration: none; }
nav a:hover { text-decoration: underline; }
main { margin: 0; padding: 0.5rem 2rem 4rem; max-width: 62rem; }
h2 { font-size: 1.5rem; margin: 2.5rem 0 0.5rem; }
h3 { font-size: 1.2rem; margin: 2rem 0 0.25rem; }
h4 { font-size: 1rem; margin: 1.5rem 0 0.4rem; }
.operation { border-top: 1px solid var(--line); margin-top: 2rem; }
.call { font-size: 1.05rem; }
.call code { background: none; padding: 0; }
.method { font: 600 0.75rem ui-monospace, monospace; color: var(--quiet); }
.call .method { font-size: 0.9rem; }
code { background: var(--card); padding: 0.1em 0.3em; border-radius: 3px; }
pre { background: var(--card); border: 1px solid var(--line); border-radius: 6px; padding: 0.8rem 1rem; overflow: auto; max-height: 30rem; font-size: 0.9rem; }
pre code { background: none; padding: 0; overflow-wrap: normal; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 0.95rem; }
th, td { text-align: left; vertical-align: top; padding: 0.45rem 0.75rem 0.45rem 0; border-bottom: 1px solid var(--line); font-weight: normal; }
thead th { font-size: 0.8rem; color: var(--quiet); }
tbody th { min-width: 11rem; }
.need { display: block; font-size: 0.8rem; color: var(--quiet); }
.description { color: var(--quiet); }
.pattern { font-size: 0.8em; }
.option { border-left: 3px solid var(--line); padding-left: 1rem; margin: 0.75rem 0; }
.name { font-weight: 600; margin-bottom: 0.2rem; }
.answers { margin: 0; }
.answers > div { display: grid; grid-template-columns: 4rem minmax(0, 1fr); border-bottom: 1px solid var(--line); padding: 0.4rem 0; }
dt { color: var(--text); font: 600 1rem ui-monospace, monospace; padding-top: 0.1rem; }
dt.s2, dt.s3 { color: var(--good); }
dt.s4, dt.s5 { color: var(--bad); }
dd p { margin: 0 0 0.3rem; }
.codes, .headers { margin: 0; padding: 0; list-style: none; }
.headers { color: var(--quiet); font-size: 0.9rem; }
@media (max-width: 52rem) {
  .layout { display: block; }
  nav { position: static; max-height: none; border-right: 0; border-bottom: 1px solid var(--line); padding: 0.5rem 1rem 1.5rem; }
  nav a { padding: 0.4rem 0; }
  header { padding: 1.25rem 1rem 1rem; }
  main { padding: 0 1rem 3rem; }
  tbody th { min-width: 8.5rem; }
  .answers > div { grid-template-columns: 3.2rem minmax(0, 1fr); }
}
@media print { nav { display: none; } .layout { display: block; } }
`;
