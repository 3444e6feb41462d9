import { fromUtf8, utf8 } from '../../../protocol/bytes.js';
import { attempt } from '../../../protocol/errors.js';
import { isObject, parseStrict, type JsonValue } from '../../../protocol/json.js';
import { keepNumbers, stringify } from './exact-numbers.js';

export { isObject };

export type JsonObject = Record<string, JsonValue>;
export type RequestId = string | number;

export interface Message {
  /** The parsed message. `stringify` writes it with the original digits of all numbers. */
  json: JsonObject;
  /** The text to forward: as received, unless two JSON parsers could disagree about it. */
  text: string;
  /** Whether the received text has one meaning for every parser. */
  isStrict: boolean;
  /** The request whose HTTP response stream carried the message. */
  relatedTo?: RequestId;
}

export interface Connection {
  /** Resolves when the other side can take more. Never rejects: a lost connection ends `read`. */
  send: (message: Message) => Promise<void>;
  /** Passes on every message, one after the other, until the connection ends. */
  read(receive: Receiver): Promise<void>;
  close(): Promise<void>;
}

export interface Receiver {
  message(message: Message): Promise<void>;
  /** Gets text that is not a message. */
  garbage(reason: string): Promise<void>;
}

export const ERROR = {
  parse: -32700,
  invalidRequest: -32600,
  invalidParams: -32602,
  internal: -32603,
  headerMismatch: -32020,
  /** The request was valid, and its tool did not run. */
  notAdmitted: -32000,
} as const;

/** Limit of nesting: tool schemas nest deeper than the documents of the service. */
const MAX_DEPTH = 256;

/** Throws an `Error` whose message says why the bytes are not one message. */
export function readMessage(bytes: Uint8Array): Message {
  const text = fromUtf8(bytes);
  const exact = attempt(() => parseStrict(bytes, { maxDepth: MAX_DEPTH }));
  // Fast path: most hosts use `JSON.stringify`, which prints no number that a double would change.
  const isExact = exact !== undefined && JSON.stringify(exact) === text;
  const kept = isExact ? text : keepNumbers(text);
  const strict = isExact ? exact : attempt(() => parseStrict(utf8(kept), { maxDepth: MAX_DEPTH }));
  const json = strict ?? (JSON.parse(kept) as JsonValue);
  if (Array.isArray(json)) throw new Error('batches are not supported');
  if (!isObject(json)) throw new Error('the message is not a JSON object');
  const isStrict = strict !== undefined;
  // On stdio a line break, which JSON has only between its tokens, would end the message. With duplicate
  // members the other side could read the other value, so the proxy forwards the value that it parsed.
  return { json, text: isStrict ? text.replace(/[\r\n]+/g, ' ') : stringify(json), isStrict };
}

/** The body of an HTTP request or response. Throws above the limit: an endless body must not fill the memory. */
export async function readBody(
  body: AsyncIterable<Buffer>,
  what: 'message' | 'response',
  maxMebibytes: number,
): Promise<Uint8Array> {
  const parts: Buffer[] = [];
  let size = 0;
  for await (const part of body) {
    size += part.length;
    if (size > maxMebibytes * 2 ** 20) {
      throw new Error(`the ${what} is longer than ${String(maxMebibytes)} MiB`);
    }
    parts.push(part);
  }
  return Buffer.concat(parts);
}

export function makeMessage(json: object, relatedTo?: RequestId): Message {
  const message = { json: json as JsonObject, text: stringify(json), isStrict: true };
  return relatedTo === undefined ? message : { ...message, relatedTo };
}

export function errorResponse(id: RequestId | null, code: number, message: string): Message {
  return makeMessage({ jsonrpc: '2.0', id, error: { code, message } });
}

export const methodOf = ({ json }: Message): string | undefined =>
  typeof json['method'] === 'string' ? json['method'] : undefined;

export const paramsOf = ({ json }: Message): JsonObject => objectIn(json, 'params');

export function objectIn(object: JsonObject, name: string): JsonObject {
  const value = Object.hasOwn(object, name) ? object[name] : undefined;
  return isObject(value) ? value : {};
}

/** The `id`; null for an id that MCP does not allow. */
export function idOf({ json }: Message): RequestId | null | undefined {
  const { id } = json;
  if (id === undefined || typeof id === 'string' || Number.isSafeInteger(id)) {
    return id as RequestId | undefined;
  }
  return null;
}

export const isResponse = ({ json }: Message): boolean =>
  json['method'] === undefined && ('result' in json || 'error' in json);

/**
 * Folds the case of a name, so that names that differ only in case are equal: the first step turns the Kelvin sign
 * into k, the second ſ into S.
 */
export const foldCase = (name: string): string => name.toLowerCase().toUpperCase();

/** Whether a parser that ignores the case of names, as in Go, would read a member as one of `names`. */
export function hasOtherCase(object: JsonObject, names: readonly string[]): boolean {
  const folded = names.map(foldCase);
  return Object.keys(object).some(
    (name) => !names.includes(name) && folded.includes(foldCase(name)),
  );
}

const MEMBERS = ['jsonrpc', 'id', 'method', 'params', 'result', 'error'];

/** Whether a message is a response, or a valid request or notification. */
export const isValid = (message: Message): boolean =>
  message.json['jsonrpc'] === '2.0' &&
  !hasOtherCase(message.json, MEMBERS) &&
  (isResponse(message) || (methodOf(message) !== undefined && idOf(message) !== null));

const META = 'io.modelcontextprotocol/';
export const META_VERSION = `${META}protocolVersion`;
export const META_SUBSCRIPTION = `${META}subscriptionId`;

/** The protocol version in a request; revisions since 2026-07-28 require this member. */
export function versionIn(message: Message): string | undefined {
  const version = objectIn(paramsOf(message), '_meta')[META_VERSION];
  return typeof version === 'string' ? version : undefined;
}
