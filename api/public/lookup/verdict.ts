import type { IncomingMessage, ServerResponse } from 'node:http';
import type { IdField } from '#protocol/ids';
import { isShareToken, resolveIdentifier } from '#protocol/ids';
import { runLookup } from '#protocol/snapshot/find';
import { NOT_FOUND_BODY, responseHead, unresolvedBody } from '#protocol/snapshot/head';
import type { ArtifactKind } from '#protocol/status';
import {
  CACHE_PRIVATE,
  CACHE_VERDICT,
  JSON_TYPE,
  send,
  sendFailure,
  type Answer,
} from '../http/answer.js';
import type { PublicContext } from '../context.js';
import { assertingSnapshot, unreadable } from '../snapshot/serving.js';
import type { FoundBody, Snapshot } from '../snapshot/snapshot.js';

/** What a route looks up: which ids it matches, what they stand for, and what it says of none. */
export interface VerdictRoute {
  /** The kind of artifact that each matched id resolves to. */
  matches: Partial<Record<IdField, ArtifactKind>>;
  /** Only among the latest proofs. */
  windowed: boolean;
  /** Without a match: the not-found record, or the unresolved body of a kind. */
  unmatched: 'not-found' | ArtifactKind;
}

/** The answer to a lookup, and the snapshot that it was drawn from. */
export interface RelayedVerdict {
  snapshot: Snapshot;
  answer: Answer;
}

/**
 * One lookup. It relays what was published: the status in the body was set by the verification
 * system and is not looked at here. A promise only where the snapshot is not on this machine;
 * throws a {@link Problem} when nothing may be asserted, and whatever reading throws.
 */
export function lookUp(
  ctx: PublicContext,
  route: VerdictRoute,
  requested: string,
): RelayedVerdict | Promise<RelayedVerdict> {
  const snapshot = assertingSnapshot(ctx);
  const named = resolveIdentifier(requested);
  const kind = named === null ? undefined : route.matches[named.matched_on];
  if (named === null || kind === undefined) {
    return { snapshot, answer: unmatchedAnswer(route, requested) };
  }
  const { manifest } = snapshot.opened;
  const window = Math.min(manifest.window, ctx.windowProofs);
  const newerThan = route.windowed ? Math.max(0, manifest.proofs - window) : 0;
  const relayed = (found: FoundBody | null): RelayedVerdict => ({
    snapshot,
    answer:
      found === null
        ? unmatchedAnswer(route, requested)
        : foundAnswer(kind, requested, named.matched_on, found),
  });
  const found = runLookup(snapshot.find(named.proof_id, kind, newerThan), (wanted) =>
    ctx.source.read(wanted),
  );
  return found instanceof Promise ? found.then(relayed) : relayed(found);
}

/** Answers a request with one lookup. */
export function answerVerdict(
  ctx: PublicContext,
  req: IncomingMessage,
  res: ServerResponse,
  route: VerdictRoute,
  requested: string,
): void {
  const finish = ({ snapshot, answer }: RelayedVerdict): void => {
    send(ctx, req, res, snapshot, answer);
  };
  const fail = (error: unknown): void => {
    sendFailure(ctx, req, res, error, unreadable);
  };
  try {
    const relayed = lookUp(ctx, route, requested);
    if (relayed instanceof Promise) relayed.then(finish).catch(fail);
    else finish(relayed);
  } catch (error) {
    fail(error);
  }
}

function foundAnswer(
  kind: ArtifactKind,
  requested: string,
  matchedOn: string,
  { part, tail, digest }: FoundBody,
): Answer {
  return {
    status: 200,
    type: JSON_TYPE,
    cache: CACHE_VERDICT,
    // An identifier that resolves is ASCII, and Latin-1 keeps the record's bytes as they are.
    body: responseHead(kind, requested, matchedOn) + latin1(part) + latin1(tail),
    etag: `"${hex(digest)}-${kind}"`,
  };
}

function unmatchedAnswer(route: VerdictRoute, requested: string): Answer {
  if (route.unmatched === 'not-found') {
    return { status: 404, type: JSON_TYPE, cache: CACHE_VERDICT, body: NOT_FOUND_BODY };
  }
  return {
    status: 200,
    type: JSON_TYPE,
    cache: isShareToken(requested) ? CACHE_PRIVATE : CACHE_VERDICT,
    body: Buffer.from(unresolvedBody(route.unmatched, requested)),
  };
}

function latin1(bytes: Uint8Array): string {
  return buffer(bytes).toString('latin1');
}

function hex(bytes: Uint8Array): string {
  return buffer(bytes).toString('hex');
}

function buffer(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length);
}
