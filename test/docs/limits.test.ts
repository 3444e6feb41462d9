import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { BATCHES_OF_ONE_TENANT } from '#api/engine/batches/create-batch';
import { MOST_UNDECIDED } from '#api/engine/admission/submit';
import { ENGINE_DEFAULTS, TENANT_CONNECTIONS } from '#api/engine/context';
import { BODY_LIMIT } from '#api/engine/http/request';
import { PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { MOST_SIMULATED } from '#api/engine/policy/overlay-evaluation';
import { SUBMISSION_LIMIT } from '#api/engine/verification/verify-proof';
import { BODY_LIMIT as PUBLIC_BODY_LIMIT } from '#api/public/http/problem';
import { BATCH_ITEMS_MAX } from '#protocol/schemas/batch';
import { MAX_SNAPSHOT_MS } from '#protocol/schemas/log-entry';
import { MOST_RULES } from '#protocol/schemas/overlays';
import { HTTP_LIMITS } from '#runtime/http/connections';
import { packageRoot } from '#runtime/process/files';
import { DEFAULT_TIMEOUT_MS, RETRY_DEFAULTS } from '#sdk/options';
import { CHUNK_ITEMS } from '#sql/batches/accept';
import { APPROVAL_SECONDS } from '#sql/proofs/rebuild-aep';
import { LOCK_TIMEOUT_MS } from '#sql/schema/migrate';
import { WORKER_DEFAULTS } from '#workers/admit/worker';
import { VERIFIER_DEFAULTS } from '#workers/verify/verifier';

const count = (n: number): string => n.toLocaleString('en');
const word = (n: number): string => ['none', 'one', 'two', 'three', 'four'][n] ?? String(n);
const kib = (bytes: number): string => `${String(bytes / 1024)} KiB`;
const mib = (bytes: number): string => kib(bytes / 1024).replace('KiB', 'MiB');
const seconds = (ms: number): string => `${String(ms / 1000)} s`;
const minutes = (ms: number): string => `${String(ms / 60_000)} minutes`;

const { batchLimit, batchesAtOnce, waitMs } = ENGINE_DEFAULTS;
const { attempts, attemptTimeoutMs, baseDelayMs, maxDelayMs } = RETRY_DEFAULTS;
const { threads, queued, timeoutMs } = PDF_DEFAULTS;

/** Sentences of the pages, with the numbers of the code. */
const STATED: Record<string, string[]> = {
  'docs/concepts.md': [`Up to ${count(CHUNK_ITEMS)} admissions of a batch`],
  'docs/deploy.md': [
    `has at most ${kib(BODY_LIMIT)}; a proof to verify or replay ${kib(SUBMISSION_LIMIT)}; a batch ${mib(batchLimit)}; a lookup request of the public API ${kib(PUBLIC_BODY_LIMIT)}`,
    `while ${count(MOST_UNDECIDED)} single requests that the same tenant`,
    `at most ${seconds(waitMs)} after its acceptance`,
    `one batch has at most ${count(BATCH_ITEMS_MAX)} items`,
    `at most ${word(BATCHES_OF_ONE_TENANT)} batches of a tenant, and commits at most ${word(batchesAtOnce)} batches`,
    `and ${mib(batchesAtOnce * batchLimit)} for the rest of all batches`,
    `at most ${word(TENANT_CONNECTIONS.perOwner)} for one tenant`,
    `${seconds(TENANT_CONNECTIONS.timeoutMs)}: a tenant's read waits for a connection`,
    `in up to ${word(threads)} threads, round-robin over the tenants. At most ${count(queued)} requests may wait, and one tenant may have at most ${count((threads + queued) / 2)}`,
    `${seconds(timeoutMs)} for a PDF`,
    `${seconds(HTTP_LIMITS.headersMs)}: request headers are incomplete`,
    `${seconds(HTTP_LIMITS.requestMs)}: a request is incomplete`,
    `${seconds(HTTP_LIMITS.keepAliveMs)} without a request, or ${seconds(HTTP_LIMITS.idleMs)} without a transfer`,
    `or trailers: ${kib(HTTP_LIMITS.headerBytes)}, ${count(HTTP_LIMITS.headers)} headers`,
    `that wait for responses: ${count(HTTP_LIMITS.pipelined)}`,
    `have not read: ${mib(HTTP_LIMITS.unreadBytes)} in all`,
    `connections: ${count(HTTP_LIMITS.connections)}, so`,
    `with more than ${count(HTTP_LIMITS.connectionsPerAddress)} connections`,
    `a worker after ${minutes(WORKER_DEFAULTS.stallTimeoutMs)}`,
    `a verifier after ${minutes(VERIFIER_DEFAULTS.stallTimeoutMs)}`,
    `waits at most ${count(LOCK_TIMEOUT_MS)} ms for a lock`,
  ],
  'docs/decisions/0043-the-verifier-signs-its-verdicts-in-the-log.md': [
    `at most every ${String(VERIFIER_DEFAULTS.intervalMs / 1000)} seconds, or every half second`,
    `a busy log up to ${count(3_600_000 / VERIFIER_DEFAULTS.busyIntervalMs)}`,
  ],
  'docs/integrate.md': [
    `in milliseconds; default ${count(DEFAULT_TIMEOUT_MS)}`,
    `\`attempts\` (default ${count(attempts)};`,
    `\`attemptTimeoutMs\` (${count(attemptTimeoutMs)}), \`baseDelayMs\` (${count(baseDelayMs)}), \`maxDelayMs\` (${count(maxDelayMs)})`,
  ],
  'docs/operate.md': [
    `\`SNAPSHOT_TTL=${String(MAX_SNAPSHOT_MS / 3_600_000)}h\`, the longest validity`,
  ],
  'docs/policies.md': [
    `by default ${count(APPROVAL_SECONDS)} seconds`,
    `1 to ${count(MOST_RULES)} rules`,
    `at most the newest ${count(MOST_SIMULATED)}`,
  ],
  'docs/runbooks.md': [
    `at most ${count((VERIFIER_DEFAULTS.scrubBatch * 1000) / VERIFIER_DEFAULTS.scrubMs)} leaves per second`,
  ],
};

it.each(Object.entries(STATED))('%s > states the limits of the code', (page, stated) => {
  const text = readFileSync(join(packageRoot, page), 'utf8').replace(/\s+/g, ' ');
  expect(stated.filter((part) => !text.includes(part))).toEqual([]);
});
