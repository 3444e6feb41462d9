import { toBase64, utf8 } from '../../../protocol/bytes.js';
import {
  isObject,
  type JsonObject,
  type Message,
  methodOf,
  objectIn,
  paramsOf,
  versionIn,
} from './message.js';

/** The member of the parameters that `Mcp-Name` mirrors, by method. */
const NAMES = new Map([
  ['tools/call', 'name'],
  ['prompts/get', 'name'],
  ['resources/read', 'uri'],
  ['tasks/get', 'taskId'],
  ['tasks/update', 'taskId'],
  ['tasks/cancel', 'taskId'],
]);

/** The value of `Mcp-Name`; undefined for a request without the header. */
export function nameIn(message: Message): unknown {
  const member = NAMES.get(methodOf(message) ?? '');
  return member === undefined ? undefined : paramsOf(message)[member];
}

interface Parameter {
  header: string;
  path: string[];
}

/**
 * The headers that mirror the body of a request since revision 2026-07-28, with the arguments that the
 * schema of a tool marks with `x-mcp-header`.
 */
export function openParameterHeaders() {
  const marked = new Map<string, Parameter[]>();
  return {
    /** Reads a page of `tools/list`. */
    note: ({ tools }: JsonObject): void => {
      for (const tool of Array.isArray(tools) ? tools : []) {
        if (!isObject(tool) || typeof tool['name'] !== 'string') continue;
        marked.set(tool['name'], parametersIn(objectIn(tool, 'inputSchema'), []));
      }
    },
    /** The headers of a request; requests of earlier revisions have no such headers. */
    of: (message: Message): Record<string, string> => {
      const version = versionIn(message);
      const method = methodOf(message);
      if (version === undefined || method === undefined) return {};
      const { name, arguments: args } = paramsOf(message);
      const source = nameIn(message);
      const parameters = method === 'tools/call' ? (marked.get(name as string) ?? []) : [];
      return {
        'MCP-Protocol-Version': version,
        'Mcp-Method': method,
        ...(typeof source === 'string' && { 'Mcp-Name': encode(source) }),
        ...Object.fromEntries(
          parameters.flatMap(({ header, path }) => {
            const value = path.reduce<unknown>(
              (at, step) => (isObject(at) && Object.hasOwn(at, step) ? at[step] : undefined),
              args,
            );
            const isSent = ['string', 'number', 'boolean'].includes(typeof value);
            return isSent ? [[`Mcp-Param-${header}`, encode(String(value))]] : [];
          }),
        ),
      };
    },
  };
}

function parametersIn(schema: JsonObject, path: string[]): Parameter[] {
  return Object.entries(objectIn(schema, 'properties')).flatMap(([name, property]) => {
    if (!isObject(property)) return [];
    const here = [...path, name];
    const header = property['x-mcp-header'];
    const isToken = typeof header === 'string' && /^[!#$%&'*+.^_`|~0-9A-Za-z-]+$/.test(header);
    return [...(isToken ? [{ header, path: here }] : []), ...parametersIn(property, here)];
  });
}

const SENTINEL = /^=\?base64\?(.*)\?=$/s;

function encode(value: string): string {
  const isPlain = /^[!-~]([\t -~]*[!-~])?$/.test(value) && !SENTINEL.test(value);
  return isPlain ? value : `=?base64?${toBase64(utf8(value))}?=`;
}

export function decode(header: string): string {
  const encoded = SENTINEL.exec(header)?.[1];
  return encoded === undefined ? header : Buffer.from(encoded, 'base64').toString();
}
