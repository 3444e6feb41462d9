import {
  type GuideSection,
  type ProblemTable,
  type JsonObject,
  type OpenApiContent,
  type OpenApiDocument,
  type OpenApiHeader,
  type OpenApiOperation,
  type OpenApiParameter,
  type OpenApiResponse,
  componentOf,
} from '../openapi/types.js';
import { codeBlock, Html, html, paragraphs, prose, table } from './html.js';

interface Call {
  method: string;
  path: string;
  operation: OpenApiOperation;
}

export function operationSection(call: Call, document: OpenApiDocument, text: ReaderText): Html {
  const { method, path, operation } = call;
  const { schemas } = document.components;
  const { operationId: id, parameters, requestBody } = operation;
  const inputs = [...text.credentialsOf(operation), ...parameters];
  const body = requestBody?.content['application/json'];
  return html`<section class="operation" id="${id}" aria-labelledby="${id}-title">
    <h3 id="${id}-title">${operation.summary}</h3>
    <p class="call">
      <span class="method ${method.toLowerCase()}">${method}</span> <code>${breakable(path)}</code>
    </p>
    ${paragraphs(operation.description)} ${inputs.length > 0 && parametersOf(inputs, schemas)}
    ${
      body?.schema !== undefined &&
      html`<h4>Body</h4>
        ${fieldsOf(body.schema, schemas)}`
    }
    ${examplesOf(call, body, text)}
    <h4>Responses</h4>
    <dl class="answers">
      ${Object.entries(operation.responses).map(([status, response]) =>
        answerOf(status, response, operation, document),
      )}
    </dl>
  </section>`;
}

/** Allows a line break after each slash, for narrow screens. */
function breakable(path: string): Html {
  return html`${path.split(/(?<=\/)/).map((piece) => html`${piece}<wbr />`)}`;
}

function parametersOf(parameters: readonly OpenApiParameter[], schemas: Schemas): Html {
  const rows = parameters.map(
    ({ name, required, description, schema, ...parameter }) =>
      html`<tr>
        <th scope="row">
          <code>${name}</code>
          <span class="need">${parameter.in}, ${required ? 'required' : 'optional'}</span>
        </th>
        <td>
          ${description !== undefined && html`${prose(description)}<br />`}
          ${valueOf(schema, schemas)}
        </td>
      </tr>`,
  );
  return html`<h4>Parameters and headers</h4>
    ${table('Parameters and headers', ['Name', 'Value'], rows)}`;
}

function examplesOf(call: Call, body: OpenApiContent | undefined, { shell }: ReaderText): Html {
  const named = Object.entries(body?.examples ?? {});
  const shown = named.map(([name, { value }]) => {
    const title = named.length > 1 && html`<p class="name">${name.replaceAll('_', ' ')}</p>`;
    return html`${title}${codeBlock(curlOf(call, shell, value), 'Shell command')}`;
  });
  return html`<h4>Try it</h4>
    ${shown.length > 0 ? shown : codeBlock(curlOf(call, shell), 'Shell command')}`;
}

function answerOf(
  status: string,
  response: OpenApiResponse,
  operation: OpenApiOperation,
  document: OpenApiDocument,
): Html {
  const { schemas } = document.components;
  const own = Object.entries(response.content ?? {}).filter(
    ([type]) => type !== 'application/problem+json',
  );
  const isProblem = own.length === 0 && response.content !== undefined;
  const [first] = Object.values(operation.responses);
  // Lists for a problem only the headers that the first response does not list.
  const shown = isProblem ? Object.keys(first?.headers ?? {}) : [];
  const headers = Object.entries(response.headers).filter(([name]) => !shown.includes(name));
  return html`<div>
    <dt class="s${status.charAt(0)}">${status}</dt>
    <dd>
      ${isProblem ? codesOf(response) : paragraphs(response.description)}
      ${headersOf(Object.fromEntries(headers), document)}
      ${own.map(([type, content]) => contentOf(type, content, schemas))}
    </dd>
  </div>`;
}

function codesOf({ description }: OpenApiResponse): Html {
  return html`<ul class="codes">
    ${description.split('\n\n').map((line) => html`<li>${prose(line)}</li>`)}
  </ul>`;
}

function headersOf(headers: OpenApiResponse['headers'], document: OpenApiDocument): Html {
  const own = Object.entries(headers).filter(
    (entry): entry is [string, OpenApiHeader] =>
      !('$ref' in entry[1]) && document.components.headers[entry[0]] === undefined,
  );
  if (own.length === 0) return html``;
  return html`<ul class="headers">
    ${own.map(
      ([name, { description }]) => html`<li><code>${name}</code>: ${prose(description)}</li>`,
    )}
  </ul>`;
}

function contentOf(type: string, { schema, examples }: OpenApiContent, schemas: Schemas): Html {
  const isJson = /[/+]json$/.test(type);
  const shown = Object.values(examples ?? {}).map(({ value }) =>
    codeBlock(
      typeof value === 'string' ? value : JSON.stringify(value, null, 2),
      `Example of ${type}`,
    ),
  );
  return html`<p>
      <code>${type}</code>${isJson && schema !== undefined && html`: ${valueOf(schema, schemas)}`}
    </p>
    ${
      shown.length > 0 &&
      html`<details>
        <summary>Example</summary>
        ${shown}
      </details>`
    }`;
}

function curlOf({ method, path, operation }: Call, shell: Shell, body?: unknown): string {
  const inPath = (name: string): string => shell.inPath[name] ?? `$${name}`;
  const address =
    path.replaceAll(/\{(\w+)\}/g, (_, name: string) => inPath(name)) +
    (shell.queries[operation.operationId] ?? '');
  const lines = [
    `curl -sS${method === 'GET' ? '' : ` -X ${method}`} "$SVC_URL${address}"`,
    ...shell.headersOf(operation),
  ];
  if (body === undefined) return lines.join(' \\\n  ');
  return [
    [...lines, "-H 'Content-Type: application/json'", '--data-binary @- <<JSON'].join(' \\\n  '),
    inShell(body, shell),
    'JSON',
  ].join('\n');
}

/** JSON in an unquoted here-document, where the shell expands the reader's variables. */
function inShell(body: unknown, shell: Shell): string {
  if (Array.isArray(body)) {
    const items = body.map((item) => inShell(item, shell).replaceAll(/^/gm, '  '));
    return `[\n${items.join(',\n')}\n]`;
  }
  const text = JSON.stringify(body, null, 2).replaceAll(/[\\$`]/g, '\\$&');
  return shell.inBody.reduce((filled, [pattern, value]) => filled.replaceAll(pattern, value), text);
}

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

function valueOf(schema: JsonObject, schemas: Schemas): Html {
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
  const { format, maximum, minimum, pattern } = node;
  // Omits length and pattern for a described member: its description states them in words.
  const isDescribed = typeof node['description'] === 'string';
  return [
    isDescribed ? null : range(node['minLength'], node['maxLength'], 'characters'),
    range(node['minItems'], node['maxItems'], 'items'),
    typeof minimum === 'number' && html`at least ${minimum}`,
    typeof maximum === 'number' && maximum < Number.MAX_SAFE_INTEGER && html`at most ${maximum}`,
    node['uniqueItems'] === true && html`unique items`,
    !isDescribed && typeof pattern === 'string' && html`<code class="pattern">${pattern}</code>`,
    typeof format === 'string' && html`${format}`,
    'default' in node && html`default <code>${JSON.stringify(node['default'])}</code>`,
  ].filter((one) => one instanceof Html);
}

function range(least: unknown, most: unknown, of: string): Html | null {
  if (typeof most !== 'number') {
    return typeof least === 'number' ? html`at least ${least} ${of}` : null;
  }
  if (typeof least !== 'number') return html`at most ${most} ${of}`;
  return least === most ? html`${least} ${of}` : html`${least} to ${most} ${of}`;
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
  // A member's own description takes precedence over the description of its component.
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

/** Shell variables and values that make the examples work when pasted. */
interface Shell {
  about: string;
  setup: string;
  inPath: Record<string, string>;
  /** Query strings by operation id, for operations that need a query. */
  queries: Record<string, string>;
  headersOf(operation: OpenApiOperation): string[];
  /** Patterns of values in an indented JSON body, and the reader's variables that replace them. */
  inBody: readonly (readonly [RegExp, string])[];
}

export interface ReaderText {
  guide: readonly GuideSection[];
  problems: ProblemTable;
  shell: Shell;
  /** Credential headers, which OpenAPI lists as security schemes instead of parameters. */
  credentialsOf(operation: OpenApiOperation): OpenApiParameter[];
}
