import type { OpenApiOperation } from '../openapi/types.js';
import type { Shell } from './reader.js';

/** A curl command to paste into a shell. */
export function curlOf(
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
