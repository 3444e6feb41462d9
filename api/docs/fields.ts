import { componentOf, type JsonObject } from '../openapi/types.js';
import { html, prose, table, type Html } from './html.js';

type Schemas = Record<string, JsonObject>;

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
  const description =
    typeof node['description'] === 'string' && html`<p>${prose(node['description'])}</p>`;
  if (properties.length === 0) return html`${description}`;
  const rows = properties.map(
    ([name, property]) =>
      html`<tr>
        <th scope="row">
          <code>${name}</code>
          <span class="need">${required.includes(name) ? 'required' : 'optional'}</span>
        </th>
        <td>${valueOf(property, schemas)}</td>
      </tr>`,
  );
  return html`${description} ${table('Fields', ['Field', 'Value'], rows)}`;
}

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
    html`<br /><span class="description">${prose(node['description'])}</span>`
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
  const constraints: Html[] = [];
  // A description covers length and pattern in words.
  const isDescribed = typeof node['description'] === 'string';
  if (!isDescribed && (typeof minLength === 'number' || typeof maxLength === 'number')) {
    constraints.push(html`${range(minLength, maxLength)} characters`);
  }
  if (typeof minItems === 'number' || typeof maxItems === 'number') {
    constraints.push(html`${range(minItems, maxItems)} items`);
  }
  if (typeof minimum === 'number') constraints.push(html`at least ${minimum}`);
  if (typeof maximum === 'number' && maximum < Number.MAX_SAFE_INTEGER) {
    constraints.push(html`at most ${maximum}`);
  }
  if (node['uniqueItems'] === true) constraints.push(html`unique items`);
  if (!isDescribed && typeof node['pattern'] === 'string') {
    constraints.push(html`<code class="pattern">${node['pattern']}</code>`);
  }
  if (typeof node['format'] === 'string') constraints.push(html`${node['format']}`);
  if ('default' in node)
    constraints.push(html`default <code>${JSON.stringify(node['default'])}</code>`);
  return constraints;
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
  return join(
    marks.map(([name, one]) => html`<code>${name}: ${JSON.stringify(one['const'])}</code>`),
    ', ',
  );
}

function resolved(schema: JsonObject, schemas: Schemas): JsonObject {
  const id = componentOf(schema);
  if (id === null) return schema;
  const component = schemas[id] ?? {};
  // The description of this use first, then that of the component.
  const descriptions = [schema['description'], component['description']].filter(
    (text) => typeof text === 'string',
  );
  return {
    ...component,
    ...schema,
    ...(descriptions.length > 0 && { description: descriptions.join(' ') }),
    $ref: undefined,
  };
}

function join(parts: readonly Html[], between: string): Html {
  return html`${parts.map((part, at) => html`${at > 0 && between}${part}`)}`;
}
