import type { ProblemTable } from '../openapi/description.js';
import { COMPONENT, type OpenApiDocument } from '../openapi/types.js';
import { fieldsOf } from './fields.js';
import { codeBlock, html, prose, table, type Html } from './html.js';
import { operationSection } from './operation.js';
import type { ReaderText } from './reader.js';

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
                  ${operations.map(({ method, path, operation }) => operationSection(method, path, operation, document, text))}
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
