import type * as z from 'zod';
import {
  type Facade,
  facadeSchema,
  LOOKUP_FIELDS,
  type LookupField,
  lookupRequestSchema,
  type NotFound,
  notFoundSchema,
} from '../../protocol/schemas/facade.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import type { VerificationStatus } from '../../protocol/status.js';
import { isTime } from '../../protocol/time.js';
import { canonicalBody } from '../canonical.js';
import { SdkError } from '../errors.js';
import { httpError, readDocument, unexpected, validInput } from '../http/answers.js';
import { type Answer, type Deadline, withDeadline } from '../http/attempt.js';
import { type HttpClient, openHttpClient } from '../http/client.js';
import { parseBaseUrl, type PublicOptions } from '../options.js';

/** A verdict of the verification system, relayed unchanged by the SDK. */
export interface Lookup extends PublicAnswer<Facade | NotFound> {
  verification_status: VerificationStatus;
  /** True for PASS, VALID, VERIFIED and TRUST_ESTABLISHED only. */
  can_assert_validity: boolean;
}

/** Kinds of lookups. `identifier` takes any identifier of recent proofs; all others cover the whole history. */
export const LOOKUP_KINDS = [
  'proof',
  'certificate',
  'passport',
  'trust',
  'trust-asset',
  'share',
  'package',
  'identifier',
] as const;
/** One of {@link LOOKUP_KINDS}. */
export type LookupKind = (typeof LOOKUP_KINDS)[number];

/** An identifier and its kind. */
export interface LookupQuery {
  kind: LookupKind;
  identifier: string;
}

/**
 * `GET /api/public/verify/…`: the public verdict on an artifact. An unknown proof gets the
 * not-found record with NOT_FOUND, any other unresolved identifier BACKEND_LOOKUP_REQUIRED. A
 * registry without a current snapshot throws `unavailable`, never NOT_FOUND.
 */
export async function lookupHttp(options: PublicOptions, input: LookupQuery): Promise<Lookup> {
  const registry = openRegistry(options);
  return withDeadline(options, (deadline) => lookUp(registry, input, deadline));
}

export async function lookUp(
  registry: HttpClient,
  { kind, identifier }: LookupQuery,
  deadline: Deadline,
): Promise<Lookup> {
  if (!LOOKUP_KINDS.includes(kind)) {
    const message = `the kind must be one of ${LOOKUP_KINDS.join(', ')}`;
    throw new SdkError('invalid_input', message, { pointer: '/kind' });
  }
  const segment = pathSegment(identifier);
  const target =
    kind === 'identifier'
      ? { path: '/api/public/verify', query: { identifier } }
      : { path: `/api/public/verify/${kind}/${segment}` };
  const answer = await registry.send({ method: 'GET', ...target }, deadline);
  return readLookup(answer, identifier, ANSWERED_KIND[kind]);
}

/** A share token or a generic lookup may resolve to any kind. */
const ANSWERED_KIND: Record<LookupKind, Facade['artifact_kind'] | undefined> = {
  proof: 'proof',
  certificate: 'certificate',
  passport: 'passport',
  trust: 'trust',
  'trust-asset': 'trust',
  share: undefined,
  package: 'trust',
  identifier: undefined,
};

/** One identifier, as a member named after its kind. */
export type LookupInput = { [F in LookupField]: Record<F, string> }[LookupField];

/** `POST /api/public/verify`: keeps the identifier out of URL logs. Covers recent proofs only. */
export async function lookupByBodyHttp(
  options: PublicOptions,
  input: LookupInput,
): Promise<Lookup> {
  const registry = openRegistry(options);
  const versioned = { schema_version: SCHEMA.lookupRequest, ...input };
  const document = validInput(lookupRequestSchema, versioned);
  const body = canonicalBody(document);
  const field = LOOKUP_FIELDS.find((name) => document[name] !== undefined)!;
  const request = { method: 'POST', path: '/api/public/verify', body } as const;
  const answer = await withDeadline(options, (deadline) => registry.send(request, deadline));
  return readLookup(answer, document[field]!);
}

/** An escaped path segment. URL parsers would resolve `.` and `..`, and drop an empty segment. */
export function pathSegment(identifier: string): string {
  const pointer = '/identifier';
  // Callers in JavaScript: `encodeURIComponent(undefined)` is a path segment like any other.
  if (typeof identifier !== 'string') {
    throw new SdkError('invalid_input', 'the identifier is not a string', { pointer });
  }
  if (/^\.{0,2}$/.test(identifier)) {
    throw new SdkError('invalid_input', 'the identifier is empty or a path step', { pointer });
  }
  try {
    return encodeURIComponent(identifier);
  } catch (cause) {
    const message = 'the identifier contains half of a surrogate pair';
    throw new SdkError('invalid_input', message, { pointer, cause });
  }
}

/** Throws unless a document is about the requested artifact, as it states twice. */
export function requireAbout(
  answer: Answer,
  document: Pick<Facade, 'artifact_kind' | 'identifier' | 'lookup'>,
  identifier: string,
  kind: Facade['artifact_kind'] = document.artifact_kind,
): void {
  const stated = [document.identifier, document.lookup.requested];
  if (document.artifact_kind !== kind || stated.some((one) => one !== identifier)) {
    throw unexpected(answer, 'the response is about another artifact');
  }
}

function readLookup(answer: Answer, identifier: string, kind?: Facade['artifact_kind']): Lookup {
  if (answer.status === 200) {
    const record = readDocument(answer, facadeSchema);
    requireAbout(answer, record, identifier, kind);
    const { verification_status, can_assert_validity } = record.verification;
    return { record, verification_status, can_assert_validity, snapshot: snapshotOf(answer) };
  }
  // A 404 with a problem document is a missing route, not a statement about a proof.
  const isProblem = answer.headers.get('content-type')?.startsWith('application/problem+json');
  if (answer.status !== 404 || isProblem === true) throw httpError(answer);
  const record = readDocument(answer, notFoundSchema);
  const { verification_status, can_assert_validity } = record;
  return { record, verification_status, can_assert_validity, snapshot: snapshotOf(answer) };
}

/** More than any public document has: a package of 100 proofs has some hundred kilobytes. */
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** The published snapshot behind a response. */
export interface SnapshotFacts {
  /** Number of log leaves that the snapshot covers: NOT_FOUND holds as of this size. */
  tree_size: number;
  /** Version of the snapshot, incremented with each publication. */
  generation: number;
  /** Time of the snapshot's signature: RFC 3339 UTC with milliseconds. */
  issued_at: string;
}

/** A response of the public API: the unchanged record and its snapshot. */
export interface PublicAnswer<T> {
  record: T;
  snapshot: SnapshotFacts;
}

export function openRegistry(options: PublicOptions): HttpClient {
  const base = parseBaseUrl('publicUrl', options.publicUrl);
  return openHttpClient(options, base, {}, MAX_RESPONSE_BYTES);
}

export async function readPublic<T>(
  options: PublicOptions,
  path: string,
  schema: z.ZodType<T>,
  check: (answer: Answer, record: T) => void = () => undefined,
): Promise<PublicAnswer<T>> {
  const registry = openRegistry(options);
  const answer = await withDeadline(options, (deadline) =>
    registry.read({ method: 'GET', path }, deadline),
  );
  const record = readDocument(answer, schema);
  check(answer, record);
  return { record, snapshot: snapshotOf(answer) };
}

/** The snapshot headers, required because a verdict holds only for a known state of the log. */
export function snapshotOf(answer: Answer): SnapshotFacts {
  const number = (name: string): number => {
    const text = answer.headers.get(name) ?? '';
    if (!/^[0-9]{1,15}$/.test(text)) throw unexpected(answer, `the response has no ${name}`);
    return Number(text);
  };
  const issuedAt = answer.headers.get('x-svc-snapshot-issued-at') ?? '';
  if (!isTime(issuedAt)) throw unexpected(answer, 'the response has no x-svc-snapshot-issued-at');
  return {
    tree_size: number('x-svc-tree-size'),
    generation: number('x-svc-snapshot-generation'),
    issued_at: issuedAt,
  };
}
