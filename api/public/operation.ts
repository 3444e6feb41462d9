import type { IncomingMessage, ServerResponse } from 'node:http';
import { STRICT_JSON_CODES } from '#protocol/errors';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import type { Clock } from '#runtime/clock';
import type { Logger } from '#runtime/process/log';
import type { OperationSpec } from '../openapi/types.js';
import type { ProblemCode } from './http/problem.js';
import type { Checkpoints } from './log/checkpoints.js';
import type { SnapshotPoller } from './snapshot/poller.js';
import type { SnapshotSource } from './snapshot/source.js';

/** `last` is the decoded value of the last path parameter; '' without a path parameter. */
export type Handler = (exchange: Exchange, last: string) => void | Promise<void>;

/** One documented operation: both the router and the OpenAPI document are built from it. */
export interface PublicSpec extends OperationSpec<ProblemCode> {
  method: 'get' | 'post';
  tag: 'Verification' | 'Artifacts' | 'Log' | 'Page' | 'Service';
  /** Whether the last parameter matches the rest of the path, slashes included; it may be empty. */
  takesRest?: true;
  /** Whether responses have the snapshot headers. */
  fromSnapshot?: true;
}

export interface Operation {
  spec: PublicSpec;
  handler: Handler;
}

const WITH_BODY: readonly ProblemCode[] = [
  'incomplete_body',
  ...STRICT_JSON_CODES,
  'unsupported_schema_version',
  'unknown_field',
  'invalid_field',
  'body_too_large',
  'unsupported_media_type',
  'unsupported_content_encoding',
];

export function problemsOf({ body, problems }: PublicSpec): ProblemCode[] {
  return [...new Set([...(body === undefined ? [] : WITH_BODY), ...problems])];
}

/** Matches the raw, still encoded path of a request. */
export function pathPattern({ path, takesRest }: PublicSpec): RegExp {
  const last = path.lastIndexOf('{');
  const source = path
    .replaceAll('.', '\\.')
    .replaceAll(/\{\w+\}/g, (_parameter, at: number) =>
      takesRest && at >= last ? '[^]*' : '[^/]+',
    );
  return new RegExp(`^${source}$`);
}

/** Metrics of the public API. Routes are documented paths: request paths may contain tokens. */
export interface PublicMetrics {
  /** Called for every lookup, so it must only increment a counter. */
  countRequest(route: string | null, method: string, status: number | null): void;
  observeDuration(route: string | null, ms: number): void;
  countVerdict(status: string): void;
}

/** The dependencies of the public API operations: a snapshot, but no database, queue or secret. */
export interface PublicContext {
  source: SnapshotSource;
  poller: SnapshotPoller;
  checkpoints: Checkpoints;
  trust: PinnedKeys;
  /** The public base URL for shared links, without a trailing slash; null: shared links are relative. */
  publicUrl: string | null;
  clock: Clock;
  log: Logger;
  metrics?: PublicMetrics;
  /** Aborted when shutdown begins; the server then reports that it is not ready. */
  stopping?: AbortSignal;
}

export interface Exchange {
  ctx: PublicContext;
  req: IncomingMessage;
  res: ServerResponse;
  /** The value of `X-Request-Id` in the response. */
  requestId: string;
  /** The documented path, for metrics and the log; null for an unknown path. */
  route: string | null;
  /** Whether the request may contain a share token outside its URL; if so, no cache may store the response. */
  secret?: boolean;
}
