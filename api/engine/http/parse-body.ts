import type { IncomingMessage } from 'node:http';
import type * as z from 'zod';
import { ProtocolError } from '#protocol/errors';
import { isObject, type JsonValue, parseStrict, pointerStep } from '#protocol/json';
import {
  bodyFaults,
  type BodyFault,
  bounded,
  problemOf,
  wrongVersion,
} from '#protocol/schemas/body-faults';
import { safeParse } from '#protocol/schemas/messages';
import { BodyRefusedError, readJsonBody } from '#runtime/http/json-body';
import { Problem, type ProblemCode, PROBLEMS } from './problem.js';

/** @param version the supported version, for union schemas: their errors do not name the version */
export function parseBody<T>(schema: z.ZodType<T>, bytes: Uint8Array, version?: string): T {
  const value = parseJson(bytes);
  const count = countMembers(value);
  if (count > MOST_IN_BODY) throw tooMany('', `${MOST_IN_BODY} members and items in all`);
  return parseDocument(schema, value, version);
}

/** Limit of members of an object and of items of an array; admissions and batches have their own limits. */
const MOST_MEMBERS = 1_000;
/** Limit of the members and items of all objects and arrays of a body. */
const MOST_IN_BODY = 10_000;

/** Limits the number of faults, because zod reports one per item, and 120,000 would block the event loop for a second. */
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
  throw violation(bodyFaults(result.error, value, version));
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

/** The problem of a body whose version is not in `versions`. Without a schema, no other faults are known. */
export function unknownVersion(value: JsonValue, versions: readonly string[]): Problem {
  if (!isObject(value)) {
    return violation([{ code: 'invalid_field', pointer: '', detail: 'expected an object' }]);
  }
  return violation([wrongVersion(value, versions.map((version) => `"${version}"`).join(' or '))]);
}

function violation(found: BodyFault[]): Problem {
  const { code, detail, errors } = problemOf(found);
  return new Problem(code, detail, { errors });
}

/** Limit in bytes: the longest valid body with every character escaped, but without extra white space, fits. */
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
