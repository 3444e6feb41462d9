import type * as z from 'zod';
import { attempt } from '../../protocol/errors.js';
import { isObject, parseStrict, pointerStep, type JsonValue } from '../../protocol/json.js';
import { safeParse } from '../../protocol/schemas/messages.js';
import { openSchema } from '../../protocol/schemas/open-schema.js';
import { publicProblemSchema } from '../../protocol/schemas/problem.js';
import { canonicalBody } from '../canonical.js';
import { SdkError, type SdkErrorCode, type ServiceProblem } from '../errors.js';
import { invalidInput } from '../options.js';
import type { Answer } from './attempt.js';

/**
 * The document of a response as sent: strict JSON with every member of `schema`. Keeps members that
 * a newer service added, except in documents of `FIXED_SCHEMAS`. Throws `unexpected_response`.
 */
export function readDocument<T>(answer: Answer, schema: z.ZodType<T>): T {
  requireType(answer, 'application/json');
  let value: JsonValue;
  try {
    value = parseStrict(answer.bytes);
  } catch (cause) {
    throw unexpected(answer, 'the response is not strict JSON', cause);
  }
  const result = openSchema(schema).safeParse(value);
  if (!result.success) {
    const pointer = result.error.issues[0]?.path.map(String).map(pointerStep).join('') ?? '';
    const message = `the response does not have the expected form, at ${pointer || '/'}`;
    throw unexpected(answer, message, result.error);
  }
  return value as T;
}

export function requireType(answer: Answer, type: string): void {
  const sent = (answer.headers.get('content-type') ?? '').split(';')[0]?.trim().toLowerCase();
  if (sent !== type) throw unexpected(answer, `the response is not ${type}`);
}

/** {@link readDocument} for a document with requested members, such as an id, or a state that the caller relies on. */
export function readAbout<Name extends string, T extends Record<Name, unknown>>(
  answer: Answer,
  schema: z.ZodType<T>,
  what: string,
  requested: Readonly<Record<Name, unknown>>,
): T {
  const document = readDocument(answer, schema);
  const names = Object.keys(requested) as Name[];
  if (names.every((name) => document[name] === requested[name])) return document;
  throw unexpected(answer, `the response is not about the requested ${what}`);
}

export function unexpected(answer: Answer, message: string, cause?: unknown): SdkError {
  return new SdkError('unexpected_response', message, { ...identify(answer), cause });
}

const identify = ({ status, headers }: Answer) => ({
  status,
  requestId: headers.get('x-request-id') ?? undefined,
});

export function validInput<T>(schema: z.ZodType<T>, input: unknown): T {
  const result = safeParse(schema, input);
  if (result.success) return result.data;
  const [issue] = result.error.issues;
  const path = issue === undefined ? [] : [...issue.path];
  const fault = isSetToUndefined(input, path)
    ? 'is set to undefined'
    : (issue?.message ?? 'is not valid');
  if (issue?.code === 'unrecognized_keys') path.push(issue.keys[0] ?? '');
  const pointer = path.map(String).map(pointerStep).join('');
  throw invalidInput(pointer, `${pointer || '/'}: ${fault}`, result.error);
}

/** Whether the member is present but undefined, which is a fault of optional members, too. */
function isSetToUndefined(input: unknown, path: readonly PropertyKey[]): boolean {
  let owner: unknown;
  let value = input;
  for (const step of path) {
    owner = value;
    value = (owner as Record<PropertyKey, unknown> | null | undefined)?.[step];
  }
  return value === undefined && isObject(owner) && Object.hasOwn(owner, path.at(-1) ?? '');
}

/** The canonical body of a valid document. Throws `invalid_input`. */
export const validBody = <T>(schema: z.ZodType<T>, document: object): Uint8Array =>
  canonicalBody(validInput(schema, document) as object);

const BY_STATUS: Partial<Record<number, SdkErrorCode>> = {
  401: 'unauthenticated',
  403: 'forbidden',
  404: 'not_found',
  408: 'unavailable',
  409: 'not_ready',
  410: 'gone',
  423: 'lane_locked',
  429: 'rate_limited',
  502: 'unavailable',
  503: 'unavailable',
  504: 'unavailable',
};

/** Problems with the status 409 that a repetition of the request does not change. */
const FINAL_CONFLICTS: ReadonlySet<string> = new Set([
  'already_decided',
  'approver_retired',
  'run_closed',
  'run_seq_taken',
]);

/** Statuses of temporary failures; proxies send them without a problem document of the API. */
export const RETRIED_STATUS: ReadonlySet<number> = new Set([408, 429, 502, 503, 504]);

export function httpError(answer: Answer): SdkError {
  const { status } = answer;
  const problem = problemOf(answer);
  const after = retryAfterMs(answer.headers, Date.now()) ?? undefined;
  const details = { ...identify(answer), problem, retryAfterMs: after };
  if (problem === undefined && status !== 500 && !RETRIED_STATUS.has(status)) {
    const message = `status ${String(status)} without a problem document: check the address`;
    return new SdkError('unexpected_response', message, details);
  }
  const otherwise = status < 500 ? 'invalid_request' : 'engine_failed';
  const isFinal = problem !== undefined && FINAL_CONFLICTS.has(problem.code);
  const code = isFinal ? 'invalid_request' : (BY_STATUS[status] ?? otherwise);
  return new SdkError(code, problem ? describe(problem) : `status ${String(status)}`, details);
}

function describe({ code, detail, errors }: ServiceProblem): string {
  const [first] = errors ?? [];
  const where = first === undefined ? '' : ` (${first.pointer || '/'}: ${first.detail})`;
  return `${code}: ${detail}${where}`;
}

/** The problem document of a response; undefined if its `status` is not that of the response. */
function problemOf({ status, headers, bytes }: Answer): ServiceProblem | undefined {
  const type = headers.get('content-type') ?? '';
  if (!/^application\/problem\+json(?:\s*;|\s*$)/i.test(type)) return undefined;
  const document = attempt(() => openSchema(publicProblemSchema).parse(parseStrict(bytes)));
  return document?.status === status ? document : undefined;
}

/**
 * The delay of a `Retry-After` header in milliseconds (RFC 9110 §10.2.3), null for an absent or
 * malformed one. A date counts from the response's own `Date`, because the clocks may differ.
 */
export function retryAfterMs(headers: Headers, now: number): number | null {
  const text = headers.get('retry-after')?.trim() ?? '';
  if (/^[0-9]{1,9}$/.test(text)) return Number(text) * 1000;
  const until = httpDate(text);
  return until === null ? null : Math.max(0, until - (sentAt(headers) ?? now));
}

/** The time of a response by the clock of its sender; null without a valid `Date`. */
export const sentAt = (headers: Headers): number | null => httpDate(headers.get('date') ?? '');

/** Accepts IMF-fixdate only, as senders must use it; `Date.parse` accepts many other forms. */
function httpDate(text: string): number | null {
  if (!/^[A-Z][a-z]{2}, [0-9]{2} [A-Z][a-z]{2} [0-9]{4} [0-9:]{8} GMT$/.test(text)) return null;
  const at = Date.parse(text);
  return Number.isNaN(at) ? null : at;
}
