import type * as z from 'zod';
import { isObject, type JsonValue, pointerStep } from '../json.js';

// Bounds on what a hostile body can put into the error response.
const MOST_ERRORS = 20;
const LONGEST_POINTER = 512;

/**
 * In this order: the first fault that a body has determines the problem code, because it may cause the other faults.
 */
const SUMMARIES = {
  unsupported_schema_version:
    'The schema_version of the body is not supported. Send the version that errors names.',
  unknown_field: 'The body has an unknown field. Remove the fields listed in errors.',
  missing_field: 'The body lacks a required field. Add the fields listed in errors.',
  invalid_field: 'The body has an invalid field. Correct the fields listed in errors.',
} as const;
type ViolationCode = keyof typeof SUMMARIES;
const PRECEDENCE = Object.keys(SUMMARIES) as ViolationCode[];

/** A fault of a body, at an RFC 6901 pointer. */
export interface BodyFault {
  code: ViolationCode;
  pointer: string;
  detail: string;
}

/** @param version the supported version, for union schemas, whose errors do not name the version */
export function bodyFaults(error: z.ZodError, body: JsonValue, version?: string): BodyFault[] {
  const found = error.issues.flatMap((issue) => faultsOf(issue, body));
  const unversioned = !found.some(({ pointer }) => pointer === '/schema_version');
  return [...(unversioned ? versionFaults(body, version) : []), ...found];
}

function faultsOf(issue: z.core.$ZodIssue, body: JsonValue): BodyFault[] {
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

function versionFaults(body: JsonValue, version: string | undefined): BodyFault[] {
  if (version === undefined || !isObject(body) || body['schema_version'] === version) return [];
  return [wrongVersion(body, `"${version}"`)];
}

/** @param expected the supported versions */
export function wrongVersion(body: Record<string, JsonValue>, expected: string): BodyFault {
  return isAbsent(body, ['schema_version'])
    ? missing(['schema_version'])
    : unsupported(`expected ${expected}`);
}

function unsupported(detail: string): BodyFault {
  return { code: 'unsupported_schema_version', pointer: '/schema_version', detail };
}

function missing(path: readonly (string | number)[]): BodyFault {
  return { code: 'missing_field', pointer: pointerOf(path), detail: 'is required' };
}

/** The members of a problem document about these faults. */
export function problemOf(found: readonly BodyFault[]) {
  const code =
    PRECEDENCE.find((one) => found.some((fault) => fault.code === one)) ?? 'invalid_field';
  // The fault that determines the code comes first, so that clients may show only the first.
  const isOwn = (one: BodyFault): number => Number(one.code === code);
  const errors = found.toSorted((a, b) => isOwn(b) - isOwn(a)).slice(0, MOST_ERRORS);
  return {
    code,
    detail: SUMMARIES[code],
    errors: errors.map(({ pointer, detail }) => ({ pointer, detail })),
  };
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
export function bounded(pointer: string): string {
  if (pointer.length <= LONGEST_POINTER) return pointer;
  return pointer.slice(0, pointer.lastIndexOf('/', LONGEST_POINTER));
}
