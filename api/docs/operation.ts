import type {
  JsonObject,
  OpenApiContent,
  OpenApiDocument,
  OpenApiHeader,
  OpenApiOperation,
  OpenApiParameter,
  OpenApiResponse,
} from '../openapi/types.js';
import { fieldsOf, valueOf } from './fields.js';
import { codeBlock, html, paragraphs, prose, table, type Html } from './html.js';
import type { ReaderText, Shell } from './reader.js';

export function operationSection(
  method: string,
  path: string,
  operation: OpenApiOperation,
  document: OpenApiDocument,
  text: ReaderText,
): Html {
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
    ${examplesOf(method, path, operation, body, text)}
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

function parametersOf(
  parameters: readonly OpenApiParameter[],
  schemas: Record<string, JsonObject>,
): Html {
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

function examplesOf(
  method: string,
  path: string,
  operation: OpenApiOperation,
  body: OpenApiContent | undefined,
  { shell }: ReaderText,
): Html {
  const named = Object.entries(body?.examples ?? {});
  const calls: [string | null, string][] =
    named.length === 0
      ? [[null, curlOf(method, path, operation, shell)]]
      : named.map(([name, { value }]) => [name, curlOf(method, path, operation, shell, value)]);
  return html`<h4>Try it</h4>
    ${calls.map(
      ([name, text]) =>
        html`${name !== null && calls.length > 1 && html`<p class="name">${name.replaceAll('_', ' ')}</p>`}${codeBlock(
          text,
          'Shell command',
        )}`,
    )}`;
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
  // Headers of the first response are not repeated in problems.
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

function contentOf(
  type: string,
  { schema, examples }: OpenApiContent,
  schemas: Record<string, JsonObject>,
): Html {
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

function curlOf(
  method: string,
  path: string,
  operation: OpenApiOperation,
  shell: Shell,
  body?: unknown,
): string {
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
