import { componentOf, type JsonObject } from '../openapi/types.js';
import { html, prose, type Html } from './html.js';

type Schemas = Record<string, JsonObject>;

/** A document's members in a table, or the alternatives that a document has, each with its own. */
export function fieldsOf(schema: JsonObject, schemas: Schemas): Html {
  const node = resolved(schema, schemas);
  const options = node['oneOf'] ?? node['anyOf'];
  if (Array.isArray(options)) {
    return html`<p>One of:</p>
      ${(options as JsonObject[]).map(
        (option) =>
          html`<div class="option">
            <p class="name">${nameOf(option, schemas)}</p>
            ${fieldsOf(option, schemas)}
          </div>`,
      )}`;
  }
  const properties = Object.entries((node['properties'] ?? {}) as Schemas);
  const required = (node['required'] ?? []) as string[];
  const said =
    typeof node['description'] === 'string' && html`<p>${prose(node['description'])}</p>`;
  if (properties.length === 0) return html`${said}`;
  return html`${said}
    <div class="scroll" tabindex="0" role="region" aria-label="Fields">
      <table>
        <thead>
          <tr>
            <th scope="col">Field</th>
            <th scope="col">Value</th>
          </tr>
        </thead>
        <tbody>
          ${properties.map(
            ([name, property]) =>
              html`<tr>
                <th scope="row">
                  <code>${name}</code>
                  <span class="need">${required.includes(name) ? 'required' : 'optional'}</span>
                </th>
                <td>${valueOf(property, schemas)}</td>
              </tr>`,
          )}
        </tbody>
      </table>
    </div>`;
}

/** What may stand in one place, in words. */
export function valueOf(schema: JsonObject, schemas: Schemas): Html {
  const id = componentOf(schema);
  const node = resolved(schema, schemas);
  if (id !== null && (node['type'] === 'object' || 'oneOf' in node || 'anyOf' in node)) {
    return html`<a href="#schema-${id}">${id}</a>`;
  }
  const options = node['oneOf'] ?? node['anyOf'];
  if (Array.isArray(options)) {
    return join(
      (options as JsonObject[]).map((one) => valueOf(one, schemas)),
      ' or ',
    );
  }
  return html`${typeOf(node, schemas)}${constraintsOf(node).map((text) => html`, ${text}`)}${
    typeof node['description'] === 'string' &&
    html`<br /><span class="said">${prose(node['description'])}</span>`
  }`;
}

function typeOf(node: JsonObject, schemas: Schemas): Html {
  if ('const' in node) return html`<code>${JSON.stringify(node['const'])}</code>`;
  if (Array.isArray(node['enum'])) {
    return join(
      (node['enum'] as unknown[]).map((one) => html`<code>${JSON.stringify(one)}</code>`),
      ' or ',
    );
  }
  if (node['type'] === 'array') {
    const [first] = (node['prefixItems'] ?? []) as JsonObject[];
    return html`array of ${valueOf(first ?? ((node['items'] || {}) as JsonObject), schemas)}`;
  }
  if (Array.isArray(node['type'])) return html`${node['type'].join(' or ')}`;
  return html`${typeof node['type'] === 'string' ? node['type'] : 'any JSON'}`;
}

function constraintsOf(node: JsonObject): Html[] {
  const { minimum, maximum, minLength, maxLength, minItems, maxItems } = node;
  const said: Html[] = [];
  // What a sentence says already, and better.
  const isDescribed = typeof node['description'] === 'string';
  if (!isDescribed && (typeof minLength === 'number' || typeof maxLength === 'number')) {
    said.push(html`${range(minLength, maxLength)} characters`);
  }
  if (typeof minItems === 'number' || typeof maxItems === 'number') {
    said.push(html`${range(minItems, maxItems)} of them`);
  }
  if (typeof minimum === 'number') said.push(html`at least ${minimum}`);
  if (typeof maximum === 'number' && maximum < Number.MAX_SAFE_INTEGER) {
    said.push(html`at most ${maximum}`);
  }
  if (node['uniqueItems'] === true) said.push(html`no two the same`);
  if (!isDescribed && typeof node['pattern'] === 'string') {
    said.push(html`<code class="pattern">${node['pattern']}</code>`);
  }
  if (typeof node['format'] === 'string') said.push(html`${node['format']}`);
  if ('default' in node) said.push(html`default <code>${JSON.stringify(node['default'])}</code>`);
  return said;
}

function range(least: unknown, most: unknown): string {
  if (least === most) return String(least);
  if (typeof most !== 'number') return `at least ${String(least)}`;
  return typeof least === 'number'
    ? `${String(least)} to ${String(most)}`
    : `at most ${String(most)}`;
}

function nameOf(schema: JsonObject, schemas: Schemas): Html {
  const id = componentOf(schema);
  if (id !== null) return html`<a href="#schema-${id}">${id}</a>`;
  const properties = (resolved(schema, schemas)['properties'] ?? {}) as Schemas;
  const marks = Object.entries(properties).filter(
    ([name, one]) => name !== 'schema_version' && 'const' in one,
  );
  return marks.length === 0
    ? html``
    : join(
        marks.map(([name, one]) => html`<code>${name}: ${JSON.stringify(one['const'])}</code>`),
        ', ',
      );
}

function resolved(schema: JsonObject, schemas: Schemas): JsonObject {
  const id = componentOf(schema);
  if (id === null) return schema;
  const component = schemas[id] ?? {};
  // What the place says of it first, then what is true of it everywhere.
  const said = [schema['description'], component['description']].filter(
    (text) => typeof text === 'string',
  );
  return {
    ...component,
    ...schema,
    ...(said.length > 0 && { description: said.join(' ') }),
    $ref: undefined,
  };
}

function join(parts: readonly Html[], between: string): Html {
  return html`${parts.map((part, at) => html`${at > 0 && between}${part}`)}`;
}
