import type { IncomingMessage } from 'node:http';
import type * as z from 'zod';
import { ProtocolError } from '#protocol/errors';
import { isObject, type JsonValue, parseStrict, pointerStep } from '#protocol/json';
import { safeParse } from '#protocol/schemas/messages';
import { BodyRefusedError, readJsonBody } from '#runtime/http/json-body';
import type { ProblemMember } from '../../http/responses.js';
import { Problem, type ProblemCode, PROBLEMS } from './problem.js';

// Bounds on what a hostile body can put into the error response.
const MOST_ERRORS = 20;
const LONGEST_POINTER = 512;

/** @param version the supported version, for union schemas: their errors do not name the version */
export function parseBody<T>(schema: z.ZodType<T>, bytes: Uint8Array, version?: string): T {
  const value = parseJson(bytes);
  const count = countMembers(value);
  if (count > MOST_IN_BODY) throw tooMany('', `${MOST_IN_BODY} members and items in all`);
  return parseDocument(schema, value, version);
}

/** Limit of members of an object and of items of an array; admissions and batches have other limits. */
const MOST_MEMBERS = 1_000;
/** Limit of the members and items of all objects and arrays of a body. */
const MOST_IN_BODY = 10_000;

/** zod reports a fault of each item: 120,000 faults would block the event loop for a second. */
function countMembers(value: JsonValue, pointer = ''): number {
  if (typeof value !== 'object' || value === null) return 0;
  const members = Object.entries(value);
  if (members.length > MOST_MEMBERS) throw tooMany(pointer, `${MOST_MEMBERS} members or items`);
  const counts = members.map(([name, one]) => countMembers(one, pointer + pointerStep(name)));
  return counts.reduce((sum, count) => sum + count, members.length);
}

const tooMany = (pointer: string, most: string): Problem =>
  violation([
    { code: 'invalid_field', pointer: bounded(pointer), detail: `expected at most ${most}` },
  ]);

/** The validation step of `parseBody`, for bodies whose schema depends on their content. */
export function parseDocument<T>(schema: z.ZodType<T>, value: JsonValue, version?: string): T {
  const result = safeParse(schema, value);
  if (result.success) return result.data;
  const found = result.error.issues.flatMap((issue) => findings(issue, value));
  const unversioned = !found.some(({ pointer }) => pointer === '/schema_version');
  throw violation([...(unversioned ? versionFindings(value, version) : []), ...found]);
}

export function parseJson(bytes: Uint8Array): JsonValue {
  try {
    return parseStrict(bytes);
  } catch (error) {
    if (!(error instanceof ProtocolError) || !Object.hasOwn(PROBLEMS, error.code)) throw error;
    const detail = bytes.length === 0 ? 'the body is empty' : error.message;
    throw new Problem(error.code as ProblemCode, `The body is not acceptable JSON: ${detail}.`, {
      errors: [{ pointer: bounded(error.pointer ?? ''), detail }],
      cause: error,
    });
  }
}

/** The first of these faults in a body determines the problem code: others may follow from it. */
const SUMMARIES = {
  unsupported_schema_version:
    'The schema_version of the body is not supported. Send the version that errors names.',
  unknown_field: 'The body has an unknown field. Remove the fields listed in errors.',
  missing_field: 'The body lacks a required field. Add the fields listed in errors.',
  invalid_field: 'The body has an invalid field. Correct the fields listed in errors.',
} as const;
type ViolationCode = keyof typeof SUMMARIES;
const PRECEDENCE = Object.keys(SUMMARIES) as ViolationCode[];

interface Finding extends ProblemMember {
  code: ViolationCode;
}

function findings(issue: z.core.$ZodIssue, body: JsonValue): Finding[] {
  const path = issue.path.map((step) => (typeof step === 'symbol' ? String(step) : step));
  if (issue.code === 'unrecognized_keys') {
    return issue.keys.map((key) => ({
      code: 'unknown_field',
      pointer: pointerOf([...path, key]),
      detail: 'is not a field of this document',
    }));
  }
  if (isAbsent(body, path)) return [missing(path)];
  const pointer = pointerOf(path);
  if (pointer === '/schema_version') return [unsupported(issue.message)];
  return [{ code: 'invalid_field', pointer, detail: issue.message }];
}

function versionFindings(body: JsonValue, version: string | undefined): Finding[] {
  if (version === undefined || !isObject(body) || body['schema_version'] === version) return [];
  return [wrongVersion(body, `"${version}"`)];
}

function wrongVersion(body: Record<string, JsonValue>, expected: string): Finding {
  return isAbsent(body, ['schema_version'])
    ? missing(['schema_version'])
    : unsupported(`expected ${expected}`);
}

function unsupported(detail: string): Finding {
  return { code: 'unsupported_schema_version', pointer: '/schema_version', detail };
}

function missing(path: readonly (string | number)[]): Finding {
  return { code: 'missing_field', pointer: pointerOf(path), detail: 'is required' };
}

/** The problem of a body whose version is not in `versions`. Without a schema, no other faults are known. */
export function unknownVersion(value: JsonValue, versions: readonly string[]): Problem {
  if (!isObject(value)) {
    return violation([{ code: 'invalid_field', pointer: '', detail: 'expected an object' }]);
  }
  return violation([wrongVersion(value, versions.map((version) => `"${version}"`).join(' or '))]);
}

function violation(found: Finding[]): Problem {
  const code =
    PRECEDENCE.find((one) => found.some((finding) => finding.code === one)) ?? 'invalid_field';
  // The fault that determines the code comes first, so that clients may show only the first.
  const isOwn = (one: Finding): number => Number(one.code === code);
  const errors = found.toSorted((a, b) => isOwn(b) - isOwn(a)).slice(0, MOST_ERRORS);
  return new Problem(code, SUMMARIES[code], {
    errors: errors.map(({ pointer, detail }) => ({ pointer, detail })),
  });
}

function isAbsent(body: JsonValue, path: readonly (string | number)[]): boolean {
  let at: JsonValue | undefined = body;
  for (const step of path) {
    if (at === null || typeof at !== 'object') return false;
    at = Object.hasOwn(at, step) ? (at as Record<string, JsonValue>)[step] : undefined;
    if (at === undefined) return true;
  }
  return false;
}

function pointerOf(path: readonly (string | number)[]): string {
  return bounded(path.map(pointerStep).join(''));
}

/** Truncates a long pointer to its deepest ancestor within the bound. */
function bounded(pointer: string): string {
  if (pointer.length <= LONGEST_POINTER) return pointer;
  return pointer.slice(0, pointer.lastIndexOf('/', LONGEST_POINTER));
}

/** Fits the longest valid body with every character escaped: only white space makes a valid body longer. */
export const BODY_LIMIT = 64 * 1024;

export function readBody(req: IncomingMessage, limit = BODY_LIMIT): Promise<Buffer> {
  return readJsonBody(req, limit).catch((error: unknown) => {
    throw bodyProblem(error);
  });
}

export function bodyProblem(error: unknown): unknown {
  if (!(error instanceof BodyRefusedError)) return error;
  return new Problem(error.code, error.message, { headers: error.headers, cause: error });
}
