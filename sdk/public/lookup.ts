import {
  type Facade,
  facadeSchema,
  LOOKUP_FIELDS,
  type LookupField,
  lookupRequestSchema,
  type NotFound,
  notFoundSchema,
} from '../../protocol/schemas/facade.js';
import { attempt } from '../../protocol/errors.js';
import {
  requireAgreement,
  requireCurrent,
  type ProvedAnswer,
} from '../../protocol/evidence/answer.js';
import { namedIdentifier } from '../../protocol/evidence/build.js';
import { parseEvidence, type ProvedState } from '../../protocol/evidence/verify.js';
import { timeOfId } from '../../protocol/ids.js';
import { BY_PATH, routeFor, SHARED, type VerdictRoute } from '../../protocol/lookup-routes.js';
import type { TextOrBytes } from '../../protocol/offline.js';
import { SCHEMA } from '../../protocol/schemas/ids.js';
import { awaitsVerdict } from '../../protocol/state/answers.js';
import type { VerificationStatus } from '../../protocol/status.js';
import { isTime, parseTime } from '../../protocol/time.js';
import { canonicalBody } from '../canonical.js';
import { httpError, readDocument, retryAfterMs, unexpected, validInput } from '../http/answers.js';
import { type Answer, type Deadline, withDeadline } from '../http/attempt.js';
import { backoffMs, type HttpClient, type HttpRequest, openHttpClient } from '../http/client.js';
import { invalidInput, parseBaseUrl, type PublicOptions } from '../options.js';
import { crypto } from '../pins.js';
import { type EvidenceTrust, type Proved, readTrust, recompute, rejecting } from './evidence.js';

/**
 * The verdict as served. With pins, the verdict that evidence proves: the client rejects a served verdict that differs.
 */
export interface Lookup extends PublicAnswer<Facade | NotFound> {
  verification_status: VerificationStatus;
  /** True for PASS, VALID, VERIFIED and TRUST_ESTABLISHED only. */
  can_assert_validity: boolean;
  /**
   * Milliseconds after which to look the identifier up again, if it does not resolve but may resolve later. Null for
   * every other answer, and when evidence proves that the identifier is not too new.
   */
  retryAfterMs: number | null;
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

/** A lookup by {@link lookupHttp}. */
export interface LookupRequest extends LookupQuery {
  /** Whether to repeat the lookup, within the timeout of the call, while the identifier may resolve later. */
  wait?: boolean;
}

/** Shortest pause between two lookups, even if the server sends `Retry-After: 0`. */
const MIN_PAUSE_MS = 200;

/**
 * `GET /api/public/verify/…`: the public verdict on an artifact. An unknown proof gets the
 * not-found record with NOT_FOUND, any other unresolved identifier BACKEND_LOOKUP_REQUIRED. A
 * registry without a current snapshot throws `unavailable`, never NOT_FOUND.
 */
export async function lookupHttp(options: PublicOptions, input: LookupRequest): Promise<Lookup> {
  const registry = openRegistry(options);
  return withDeadline(options, async (deadline) => {
    for (;;) {
      const found = await lookUp(registry, input, deadline);
      if (input.wait !== true || found.retryAfterMs === null) return found;
      const pause = Math.max(found.retryAfterMs, MIN_PAUSE_MS);
      if (pause >= deadline.remainingMs()) return found;
      await deadline.sleep(pause);
    }
  });
}

export async function lookUp(
  registry: Registry,
  { kind, identifier }: LookupQuery,
  deadline: Deadline,
): Promise<Lookup> {
  if (!LOOKUP_KINDS.includes(kind)) {
    const message = `the kind must be one of ${LOOKUP_KINDS.join(', ')}`;
    throw invalidInput('/kind', message);
  }
  const segment = pathSegment(identifier);
  const target =
    kind === 'identifier'
      ? { path: '/api/public/verify', query: { identifier } }
      : { path: `/api/public/verify/${kind}/${segment}` };
  return readVerdict(registry, { method: 'GET', ...target }, deadline, {
    identifier,
    kind: answeredKind(routeOf(kind)),
    route: routeOf(kind),
    evidence: evidenceRequest(identifier),
  });
}

const routeOf = (kind: LookupKind): VerdictRoute =>
  kind === 'identifier' ? routeFor(kind) : BY_PATH[kind];

export const evidenceRequest = (identifier: string): HttpRequest => ({
  method: 'GET',
  path: `/api/public/evidence/${pathSegment(identifier)}`,
});

interface Target {
  identifier: string;
  route: VerdictRoute;
  evidence: HttpRequest;
}

interface Reader<T> {
  read: (answer: Answer) => T;
  /** The document that evidence proves; members that the evidence does not prove are as served. */
  prove: (answer: ProvedAnswer, served: T) => T;
}

/** An answer with its headers and the state that evidence proves; `state` is null without pins. */
interface Verified<T> extends PublicAnswer<T> {
  headers: Headers;
  state: ProvedState | null;
}

/** Attempts to read a document and its evidence from one snapshot. */
const MAX_ROUNDS = 5;
const ROUND = { baseDelayMs: 100, maxDelayMs: 1_000 };

/**
 * Reads a document. With pins, verifies evidence, and compares the document with the document that the
 * evidence proves.
 */
export async function readVerified<T>(
  registry: Registry,
  request: HttpRequest,
  deadline: Deadline,
  { identifier, route, evidence, read, prove }: Target & Reader<T>,
): Promise<Verified<T>> {
  const { trust } = registry;
  for (let round = 1; ; round++) {
    const answer = await registry.send(request, deadline);
    const served = read(answer);
    const snapshot = snapshotOf(answer);
    const { headers } = answer;
    if (trust === null) return { record: served, snapshot, evidence: null, headers, state: null };
    const { bytes } = await registry.read(evidence, deadline);
    const proved = recompute(bytes, identifier, route, trust);
    const record = prove(proved.answer, served);
    rejecting(() => requireCurrent(proved.state, proved.answer, record));
    try {
      rejecting(() => requireAgreement(record, served));
    } catch (error) {
      const isSameSnapshot = snapshot.generation === proved.snapshot.generation;
      if (isSameSnapshot || round === MAX_ROUNDS) throw error;
      await deadline.sleep(backoffMs(round, ROUND, Math.random()));
      continue;
    }
    const { state, proved: facts } = proved;
    return { record, snapshot: proved.snapshot, evidence: facts, headers, state };
  }
}

/** Evidence of a public answer, which `verifyEvidence` verifies offline. */
export interface EvidenceAnswer {
  /** The document as sent: JSON in UTF-8. */
  bytes: Uint8Array;
  /** The facts that the document proves; null without pins, when nothing was verified. */
  evidence: Proved | null;
}

/**
 * `GET /api/public/evidence/…`: the proof of the answer that `lookupHttp` gives. Throws
 * `evidence_rejected` and `evidence_outdated` with pins.
 */
export async function readEvidenceHttp(
  options: PublicOptions,
  { kind, identifier }: LookupQuery,
): Promise<EvidenceAnswer> {
  const registry = openRegistry(options);
  const answer = await registry.read(evidenceRequest(identifier));
  const { bytes } = answer;
  const { trust } = registry;
  if (trust !== null) {
    return { bytes, evidence: recompute(bytes, identifier, routeOf(kind), trust).proved };
  }
  const named = attempt(() => parseEvidence(bytes))?.identifier;
  if (named === namedIdentifier(crypto.sha256, identifier)) return { bytes, evidence: null };
  throw unexpected(answer, 'the response is not evidence about this identifier');
}

/**
 * Verifies evidence without a network, and returns the verdict that it proves. The verdict holds while
 * the evidence is valid and at most `maxAgeMs` old, a revocation at any age.
 *
 * Throws `evidence_rejected`; `evidence_outdated` with the verdict at the time of the evidence in its
 * message; `unusable_pin`.
 *
 * @param evidence from `readEvidenceHttp`, as text or bytes
 * @param query the identifier that the reader looks up; for a share, the token, which the evidence does
 * not contain
 */
export function verifyEvidence(
  evidence: TextOrBytes,
  { kind, identifier }: LookupQuery,
  trust: Pick<PublicOptions, 'maxAgeMs'> & Required<Pick<PublicOptions, 'pins'>>,
): Lookup {
  const route = routeOf(kind);
  const { answer, snapshot, proved } = recompute(evidence, identifier, route, readTrust(trust));
  return withVerdict({ record: answer.response, snapshot, evidence: proved });
}

/** The only kind that a route resolves to; undefined for a share token and a generic lookup, which have several. */
function answeredKind({ matches }: VerdictRoute): Facade['artifact_kind'] | undefined {
  const [kind, other] = new Set(Object.values(matches));
  return other === undefined && kind !== SHARED ? kind : undefined;
}

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
  return withDeadline(options, (deadline) =>
    readVerdict(registry, request, deadline, {
      identifier: document[field]!,
      route: routeFor(field),
      evidence: { ...request, path: '/api/public/evidence' },
    }),
  );
}

/** An escaped path segment. URL parsers would resolve `.` and `..`, and drop an empty segment. */
export function pathSegment(identifier: string): string {
  const pointer = '/identifier';
  // Callers in JavaScript may pass undefined, which `encodeURIComponent` turns into text.
  if (typeof identifier !== 'string') {
    throw invalidInput(pointer, 'the identifier is not a string');
  }
  if (/^\.{0,2}$/.test(identifier)) {
    throw invalidInput(pointer, 'the identifier is empty, `.` or `..`');
  }
  try {
    return encodeURIComponent(identifier);
  } catch (cause) {
    throw invalidInput(pointer, 'the identifier contains a lone surrogate', cause);
  }
}

/**
 * Throws unless a document is about the requested artifact, which its members `identifier` and
 * `lookup` name.
 */
export function requireAbout(
  answer: Answer,
  document: Pick<Facade, 'artifact_kind' | 'identifier' | 'lookup'>,
  identifier: string,
  kind: Facade['artifact_kind'] = document.artifact_kind,
): void {
  const stated = [document.identifier, document.lookup.requested];
  if (document.artifact_kind !== kind || stated.some((one) => one !== identifier)) {
    throw unexpected(answer, 'the response is not about the requested artifact');
  }
}

async function readVerdict(
  registry: Registry,
  request: HttpRequest,
  deadline: Deadline,
  { kind, ...target }: Target & { kind?: Facade['artifact_kind'] | undefined },
): Promise<Lookup> {
  const read = (answer: Answer): Facade | NotFound => {
    if (answer.status === 200) {
      const record = readDocument(answer, facadeSchema);
      requireAbout(answer, record, target.identifier, kind);
      return record;
    }
    // A 404 with a problem document is a missing route, not a statement about a proof.
    const isProblem = answer.headers.get('content-type')?.startsWith('application/problem+json');
    if (answer.status !== 404 || isProblem === true) throw httpError(answer);
    return readDocument(answer, notFoundSchema);
  };
  const prove = ({ response }: ProvedAnswer): Facade | NotFound => response;
  const found = await readVerified(registry, request, deadline, { ...target, read, prove });
  const isFinal = found.state !== null && !mayResolveLater(found.state);
  return withVerdict(found, isFinal ? null : retryAfterMs(found.headers, Date.now()));
}

/**
 * Whether an id may resolve later. Without this check, a server could pass off the absence of an old proof as "too
 * new".
 */
function mayResolveLater({ identifier, found, snapshot }: ProvedState): boolean {
  const covered = parseTime(snapshot.time) - 1000 * snapshot.max_merge_delay;
  const isNew = (timeOfId(identifier) ?? -Infinity) >= covered;
  return isNew || [...found.proofs.values()].some((one) => one !== null && awaitsVerdict(one));
}

function withVerdict(
  { record, snapshot, evidence }: PublicAnswer<Facade | NotFound>,
  retryAfter: number | null = null,
): Lookup {
  const { verification_status, can_assert_validity } =
    'verification' in record ? record.verification : record;
  // Ignores the `Retry-After` of a resolved answer, which could delay the answer until the deadline.
  const isResolved = 'lookup' in record && record.lookup.matched_on !== null;
  return {
    verification_status,
    can_assert_validity,
    record,
    snapshot,
    evidence,
    retryAfterMs: isResolved ? null : retryAfter,
  };
}

/** Limit of a response, larger than any public document: a package of 100 proofs has several hundred kilobytes. */
const MAX_RESPONSE_BYTES = 4 * 1024 * 1024;

/** The published snapshot behind a response. */
export interface SnapshotFacts {
  /** Number of log leaves that the snapshot covers: NOT_FOUND holds as of this size. */
  tree_size: number;
  /** Index of the snapshot entry in the log, which increases with each snapshot. */
  generation: number;
  /** Time of the snapshot entry: RFC 3339 UTC with milliseconds. */
  issued_at: string;
}

/** A response of the public API: the record and its snapshot. */
export interface PublicAnswer<T> {
  record: T;
  snapshot: SnapshotFacts;
  /** The facts that evidence proves about the record; null when nothing was verified. */
  evidence: Proved | null;
}

/** A public API, and the log against which its answers are verified. */
export interface Registry extends HttpClient {
  trust: EvidenceTrust | null;
}

export function openRegistry(options: PublicOptions): Registry {
  const trust = readTrust(options);
  const base = parseBaseUrl('publicUrl', options.publicUrl);
  return { ...openHttpClient(options, base, {}, MAX_RESPONSE_BYTES), trust };
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
