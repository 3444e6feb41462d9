import * as z from 'zod';
import { fromUtf8, toHex, utf8 } from '#protocol/bytes';
import { impliedEvents } from '#protocol/history';
import { parseStrict } from '#protocol/json';
import type {
  Facade,
  PublicHistory,
  PublicTrustChain,
  PublicTrustPackage,
} from '#protocol/schemas/facade';
import { SCHEMA } from '#protocol/schemas/ids';
import { proofEntrySchema } from '#protocol/schemas/log-entry';
import { publicEventSchema, type PublicEvent } from '#protocol/schemas/proof-view';
import { responseHead, unresolvedBody } from '#protocol/snapshot/head';
import { malformed } from '#protocol/snapshot/malformed';
import { RECORD_KINDS, recordBody, recordHistory } from '#protocol/snapshot/record';
import { ARTIFACT_KINDS, type ArtifactKind } from '#protocol/status';
import type { PublicContext } from '../operation.js';
import { CACHE_PRIVATE, CACHE_VERDICT, hashTag, JSON_TYPE, type Answer } from '../http/answer.js';
import { entryAt, keysOf, tlogProofAt } from '../log/files.js';
import type { Snapshot } from '../snapshot/snapshot.js';
import { isSecret, type Resolved, type VerdictRoute } from './resolve.js';

/** The response of the verify route as a document; the views are derived from it. */
export function lookupResponse(resolved: Resolved, requested: string): Facade {
  const { kind, matchedOn, body } = resolved;
  const head = responseHead(kind, requested, matchedOn);
  return parsed(head + fromUtf8(body.part) + fromUtf8(body.tail));
}

export function unresolvedResponse(kind: ArtifactKind, requested: string): Facade {
  return parsed(unresolvedBody(kind, requested));
}

/** The verdict on another artifact of the same proof; null when the proof has no such artifact. */
export function verificationOf(
  { record, matchedOn }: Resolved,
  kind: ArtifactKind,
): Facade['verification'] | null {
  const body = recordBody(record.bytes, record.id, kind);
  return body && lookupResponse({ kind, matchedOn, record, body }, '').verification;
}

type Integrity = Extract<Facade['integrity'], { leaf_index: number }>;

/** The integrity members of a proof; throws for a package, which has no log entry. */
export function integrityOf({ integrity }: Facade): Integrity {
  if ('leaf_index' in integrity) return integrity as Integrity;
  throw malformed('a published body lacks its leaf index');
}

/** The members that all views share. */
export function membersOf({ artifact_kind, identifier, lookup, verification }: Facade) {
  const { verification_status, can_assert_validity } = verification;
  return { artifact_kind, identifier, lookup, verification_status, can_assert_validity };
}

function parsed(text: string): Facade {
  // Needs no validation: the publisher signed the record.
  return JSON.parse(text) as Facade;
}

const eventsSchema = z.array(publicEventSchema);

/** The status history of an artifact; empty when it did not resolve. */
export function historyOf(response: Facade, resolved: Resolved | null): PublicHistory {
  return {
    schema_version: SCHEMA.history,
    ...membersOf(response),
    events: resolved === null ? [] : eventsOn(resolved, response),
  };
}

function eventsOn(resolved: Resolved, response: Facade): PublicEvent[] {
  const { kind, record } = resolved;
  const recorded = recordHistory(record.bytes, record.id);
  const events =
    recorded === null
      ? eventsInBody(resolved, response)
      : eventsSchema.parse(parseStrict(recorded));
  return concerning(kind, events);
}

/** Derives the events from the body when the record has no history. */
function eventsInBody(resolved: Resolved, response: Facade): PublicEvent[] {
  // In records without a history, `verified_at` may be the time of a failed check. It is a
  // verification time only when every artifact asserts validity.
  const { verified_at: verifiedAt } = response.verification;
  const isAsserted = RECORD_KINDS.every(
    (kind) => verificationOf(resolved, kind)?.can_assert_validity !== false,
  );
  return impliedEvents(integrityOf(response), isAsserted ? verifiedAt : undefined);
}

/** An artifact's events, without revocations and expiries of later artifacts in the chain. */
function concerning(kind: ArtifactKind, events: readonly PublicEvent[]): PublicEvent[] {
  const dependencies: readonly string[] = ARTIFACT_KINDS.slice(0, ARTIFACT_KINDS.indexOf(kind) + 1);
  return events.flatMap((event): PublicEvent[] => {
    if (event.event === 'revoked') return dependencies.includes(event.artifact) ? [event] : [];
    if (event.event !== 'expired') return [event];
    const artifacts = event.artifacts.filter((artifact) => dependencies.includes(artifact));
    return artifacts.length === 0 ? [] : [{ ...event, artifacts }];
  });
}

type Stage = PublicTrustChain['sequence'][number];

/** The identifier of each stage, and the artifact that provides its verdict. */
const STAGES: Record<Stage, { id: string; kind: ArtifactKind | null }> = {
  execution: { id: 'execution_id', kind: null },
  evidence: { id: 'registry_entry_id', kind: null },
  verification: { id: 'proof_id', kind: 'proof' },
  passport: { id: 'passport_id', kind: 'passport' },
  certificate: { id: 'certificate_id', kind: 'certificate' },
  trust_established: { id: 'trust_id', kind: 'trust' },
};

/** The trust chain of an artifact. Its verdicts come from the same record; none is computed. */
export function chainOf(response: Facade, resolved: Resolved | null): PublicTrustChain {
  const { available, sequence } = response.trust_chain;
  return {
    schema_version: SCHEMA.trustChain,
    ...membersOf(response),
    available,
    sequence,
    links: resolved === null ? [] : sequence.map((stage) => linkOf(stage, response, resolved)),
  };
}

function linkOf(
  stage: Stage,
  response: Facade,
  resolved: Resolved,
): PublicTrustChain['links'][number] {
  const { id, kind } = STAGES[stage];
  const identifier = (response.references as Record<string, unknown>)[id];
  const verification = kind && verificationOf(resolved, kind);
  if (typeof identifier !== 'string' || verification === undefined) {
    throw malformed(`the record lacks ${id}, which its chain needs`);
  }
  return {
    stage,
    identifier,
    verification_status: verification?.verification_status ?? null,
    can_assert_validity: verification?.can_assert_validity ?? false,
  };
}

/**
 * Builds the trust package from one snapshot, so that the verdict and the inclusion proof share one
 * checkpoint.
 */
export async function trustPackageOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  resolved: Resolved | null,
): Promise<PublicTrustPackage> {
  return {
    schema_version: SCHEMA.trustPackage,
    ...membersOf(response),
    facade: response,
    history: historyOf(response, resolved),
    chain: chainOf(response, resolved),
    evidence: resolved === null ? null : await evidenceOf(ctx, snapshot, response, resolved),
  };
}

async function evidenceOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  { record }: Resolved,
): Promise<NonNullable<PublicTrustPackage['evidence']>> {
  const { leaf_index, aep_hash, proof_record_hash } = integrityOf(response);
  const bytes = await entryAt(ctx, snapshot, leaf_index);
  const entry = proofEntrySchema.safeParse(parseStrict(bytes));
  if (
    !entry.success ||
    entry.data.proof_id !== toHex(record.id) ||
    entry.data.aep_hash !== aep_hash ||
    entry.data.proof_record_hash !== proof_record_hash
  ) {
    throw malformed(`leaf ${leaf_index} does not match the record that refers to it`);
  }
  return {
    log_entry: entry.data,
    leaf_index,
    tlog_proof: await tlogProofAt(ctx, snapshot, leaf_index),
    keys: keysOf(snapshot),
  };
}

type View = (
  ctx: PublicContext,
  snapshot: Snapshot,
  response: Facade,
  resolved: Resolved | null,
) => object | Promise<object>;

const VIEWS = {
  history: (_ctx, _snapshot, response, resolved) => historyOf(response, resolved),
  chain: (_ctx, _snapshot, response, resolved) => chainOf(response, resolved),
  package: trustPackageOf,
} satisfies Record<string, View>;

export type ViewName = keyof typeof VIEWS;

// A Map, because a client chooses the suffix, and objects also have inherited members.
const bySuffix = (views: Record<string, ViewName>): ReadonlyMap<string, ViewName> =>
  new Map(Object.entries(views));

/** The views of each kind by their path suffix. */
export const VIEW_PATHS: Record<string, ReadonlyMap<string, ViewName>> = {
  proof: bySuffix({ history: 'history' }),
  certificate: bySuffix({ history: 'history', 'trust-chain': 'chain' }),
  passport: bySuffix({ history: 'history', 'trust-chain': 'chain' }),
  trust: bySuffix({ timeline: 'history', chain: 'chain', package: 'package' }),
};

/** The view of a resolved or unresolved identifier. */
export async function viewAnswer(
  ctx: PublicContext,
  snapshot: Snapshot,
  route: VerdictRoute,
  requested: string,
  resolved: Resolved | null,
  view: ViewName,
): Promise<Answer> {
  const response =
    resolved === null
      ? unresolvedResponse(route.unmatched === 'not-found' ? 'proof' : route.unmatched, requested)
      : lookupResponse(resolved, requested);
  const body = utf8(JSON.stringify(await VIEWS[view](ctx, snapshot, response, resolved)));
  const secret = isSecret(route, requested);
  return {
    status: 200,
    type: JSON_TYPE,
    cache: secret ? CACHE_PRIVATE : CACHE_VERDICT,
    body,
    // The ETag hashes the whole body, because a view changes with its record, the log and the keys.
    ...(resolved === null || secret ? {} : { etag: hashTag(body) }),
  };
}
