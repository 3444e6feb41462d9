import { isConnectionLost, isStatementTimeout, isUnavailable } from '#sql/db/errors';
import { isInRecovery } from '#sql/db/transaction';
import { recordMaintenance } from '#sql/ops/queries';
import { activeKeys } from './signing-keys.js';
import { type AddCommand, type Admin, Outcome, plain, readable } from './command.js';
import { checkPublicApi, readFacts, type Facts, PROGRAMS, UNKNOWN_SIGNER } from './status/facts.js';

export function addStatusCommand(add: AddCommand): void {
  add(
    'status',
    'Show the state of the whole service; exit code 0 healthy, 1 with problems or unchecked parts, 2 database unreachable',
    '--json',
    showStatus,
  );
  add(
    'backup record',
    'Record that a base backup has ended and is verified; its age is part of status and metrics',
    '',
    async ({ act }) => {
      await act(recordMaintenance);
      return { recorded: 'backup' };
    },
  );
}

async function showStatus({ database, statusConfig }: Admin): Promise<Outcome> {
  try {
    let outage = 'DATABASE_URL names only this standby';
    const sql = await database().catch((error: unknown) => {
      if (!isConnectionLost(error)) throw error;
      outage = (error as Error).message;
      return database({ acceptsStandby: true });
    });
    const publicApi = await checkPublicApi(statusConfig());
    const facts = await readFacts(sql, await activeKeys(sql, 'aep'), publicApi);
    const isStandby = await isInRecovery(sql);
    const attention = attentionFor(facts, isStandby ? outage : null);
    const reached = attention.length === 0 ? 'well' : 'attention';
    return new Outcome(
      { status: isStandby ? 'unreachable' : reached, attention, ...facts },
      { text: screen(facts, attention), failed: attention.length > 0, unreachable: isStandby },
    );
  } catch (error) {
    if (!isUnavailable(error)) throw error;
    const isSlow = isStatementTimeout(error);
    const what = isSlow ? 'the database answers too slowly' : 'the database cannot be reached';
    const todo = isSlow
      ? 'pg_stat_activity and pg_locks show the cause: load, or a session that holds a lock'
      : 'check that PostgreSQL runs, and that DATABASE_URL is right';
    return new Outcome(
      { status: isSlow ? 'attention' : 'unreachable', attention: [{ what, do: todo }] },
      { text: `! ${what}\n    ${todo}\n`, failed: isSlow, unreachable: !isSlow },
    );
  }
}

/** Formats the facts, then the problems, to fit one screen. */
function screen(facts: Facts, attention: readonly Attention[]): string {
  const { pending, batches, verifier, checkpoint, publication, snapshot_disk: disk } = facts;
  const { quorum_age_ms: quorum, archive_age_ms: archived } = facts;
  const waiting = (count: number, oldest: number | null): string =>
    count === 0 ? 'none' : `${count}, the oldest waiting for ${ago(oldest)}`;
  const text = readable({
    lanes: facts.lanes
      .map((one) => `${one.environment} ${one.open ? 'open' : 'locked'}`)
      .join(', '),
    policy: facts.policy ?? 'none active',
    tenants: `${facts.tenants_allowlisted} allowlisted, ${facts.api_keys_active} active API keys`,
    'AEP keys': facts.aep_keys_active.join(', ') || 'none active',
    'worker keys': facts.worker_keys.join(', ') || 'no worker is connected',
    log: `${facts.log.leaves} leaves`,
    alive: facts.programs.map(({ program, alive }) => `${program} ${alive}`).join(', '),
    'last snapshot':
      publication.age_ms === null ? 'none known' : `current as of ${ago(publication.age_ms)} ago`,
    'public API':
      facts.public_api.map(({ url, status }) => `${url} ${status}`).join(', ') ||
      'not checked (set PUBLIC_URL)',
    pending: waiting(pending.admissions, pending.oldest_ms),
    batches: waiting(batches.open, batches.oldest_ms),
    verifier: `${verifier.lag} leaves behind, last verdict ${ago(verifier.verified_ms_ago)} ago, scrubbed to ${verifier.scrubbed_to ?? 'an unknown leaf'}`,
    'failing leaves': `${verifier.failing_leaves}, and ${verifier.voided_leaves} voided by a compromised key`,
    checkpoint:
      checkpoint === null
        ? 'none signed yet'
        : `${checkpoint.tree_size} leaves, signed ${ago(checkpoint.age_ms)} ago, ${checkpoint.lag} behind`,
    database: size(facts.database.bytes),
    disk: disk === null ? 'unknown' : `${size(disk.free_bytes)} of ${size(disk.size_bytes)} free`,
    witnesses: quorum === null ? 'none' : `quorum ${ago(quorum)} ago`,
    upkeep: facts.maintenance
      .map(({ kind, recorded, age_ms: age }) => `${kind} ${recorded ? `${ago(age)} ago` : 'never'}`)
      .join(', '),
    WAL: `${archived === null ? 'not archived' : `archived ${ago(archived)} ago`}, slots ${size(facts.replication_lag_bytes)} behind`,
    connections: facts.roles
      .map(
        ({ role, login, connections }) => `${role.slice(4)} ${login ? connections : '(no login)'}`,
      )
      .join(', '),
  });
  const lines = text
    .split('\n')
    .map((line) => fold(line, /^.*?\S {2,}/.exec(line)?.[0].length ?? 0))
    .join('\n');
  const problems = attention.map(
    ({ what, do: todo }) => `${fold(`! ${plain(what)}`, 2)}\n${fold(`    ${todo}`, 4)}\n`,
  );
  return `${lines}\n${problems.join('') || 'no problems found\n'}`;
}

function ago(ms: number | null): string {
  if (ms === null) return 'never';
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return `${Math.round(ms / 3_600_000)} h`;
}

function size(bytes: number): string {
  const power = Math.min(4, Math.floor(Math.log10(Math.max(1, bytes)) / 3));
  return `${(bytes / 1000 ** power).toFixed(power && 1)} ${['B', 'kB', 'MB', 'GB', 'TB'][power]!}`;
}

const WIDTH = 80;

/** Wraps a line between words, with a hanging indent. */
function fold(line: string, indent: number): string {
  const lines = [''];
  for (const word of line.split(/(?<=\S )(?=\S)/)) {
    const last = lines.at(-1) ?? '';
    if (last.trim() !== '' && (last + word).trimEnd().length > WIDTH) {
      lines.push(' '.repeat(indent) + word);
    } else lines[lines.length - 1] = last + word;
  }
  return lines.map((one) => one.trimEnd()).join('\n');
}

interface Attention {
  what: string;
  do: string;
}

/** Status reports longer delays as problems: restarts and requeues of admissions take less time. */
const TIMEOUT_MS = 30_000;
// The limits of the alerts in deploy/prometheus/alerts.yml.
const DAY_MS = 86_400_000;
const MAINTENANCE_MS: Record<string, number> = { fsck: 35 * DAY_MS, backup: 8 * DAY_MS };
const QUORUM_MS = 180_000;
const ARCHIVE_MS = 600_000;
const SLOT_BYTES = 1e9;

/** Longest wait of an admission while a batch is open: the workers' `stallTimeoutMs`. */
const BATCH_TIMEOUT_MS = 600_000;

const START = 'start the program, or read the log of its last process';
const PUBLISHING =
  "read the publisher's log: usually the publisher's disk is full or the verifier is down; the last snapshot stays valid until it expires";
const MISSING_KEY =
  'one publisher does not have this key: restart it with the new set of keys (docs/operate.md#rotating-signing-keys); if no operator changed a key, find out who signed with it';
const FAULT_HELP: Record<string, string> = {
  'queue down': 'start Redis, or restore the network to it; accepted admissions are not lost',
  'admissions paused': 'restart the named programs without ADMISSIONS_PAUSED to admit again',
  'ticks failing': PUBLISHING,
  'ticks stalled': PUBLISHING,
};

const helpFor = (fault: string): string =>
  fault.startsWith(UNKNOWN_SIGNER)
    ? MISSING_KEY
    : (FAULT_HELP[fault] ?? 'read the logs of these programs');

const seconds = (ms: number | null): string => `${Math.round((ms ?? 0) / 1_000)} s`;

/**
 * All problems, most severe first.
 *
 * @param outage why the facts are from a standby, which sees no sessions and no WAL archive of the primary; null if they
 *   are from the primary
 */
export function attentionFor(facts: Facts, outage: string | null = null): Attention[] {
  const found: Attention[] = [];
  const when: When = (is, what, todo) => {
    if (is) found.push({ what, do: todo });
  };
  when(
    outage !== null,
    `these values are from a standby: ${outage}`,
    'start the primary, or restore the connection to it; promote the standby only if the primary is lost (docs/runbooks.md#failover)',
  );
  checkRegistry(facts, when);
  if (outage === null) checkPrograms(facts, when);
  checkPublication(facts, when);
  checkBacklogs(facts, when);
  checkHost(outage === null ? facts : { ...facts, archive_age_ms: null }, when);
  return found;
}

/** Reports the problem `what` with the next step `todo` if `is` is true. */
type When = (is: boolean, what: string, todo: string) => void;

function checkRegistry(facts: Facts, when: When): void {
  const { verifier, aep_keys_active: activeKeys } = facts;
  when(
    verifier.failing_leaves > 0,
    `${verifier.failing_leaves} leaves do not verify`,
    "stored bytes were changed: find the leaf in the verifier's log, and compare it with a backup (npm run fsck)",
  );
  when(
    verifier.scrubbed_to === null,
    'the row of svc.scrub was deleted, so no old leaf is verified again',
    'find out who deleted it; as the owner of the schema, run: insert into svc.scrub default values',
  );
  when(facts.policy === null, 'no policy set is active', 'run policy put, then policy activate');
  when(
    activeKeys.length === 0,
    'no AEP key is active: admissions cannot be signed',
    'aep-key activate <key.pem>',
  );
  for (const key of facts.worker_keys) {
    when(
      activeKeys.length > 0 && !activeKeys.includes(key),
      `a worker's key is not active, so the worker commits no admissions: ${key}`,
      'aep-key activate <key.pem>, or restart the worker with the active key',
    );
  }
}

function checkPrograms({ programs, roles }: Facts, when: When): void {
  const isConnected = (program: string): boolean =>
    roles.some(({ role, connections }) => role === `svc_${program}` && connections > 0);
  // While commits wait for a synchronous standby, programs stay connected, because reads succeed, but record no
  // heartbeat.
  const silent = programs.flatMap(({ last_heartbeat_ms: ms }) => ms ?? []);
  const isHanging =
    silent.length > 0 &&
    programs.every(({ program, alive }) => alive === 0 && isConnected(program));
  when(
    isHanging,
    `no program has committed for ${seconds(Math.min(...silent))}, although each is connected`,
    "start the synchronous standby (docs/runbooks.md#failover); if none is down, check that the programs' hosts run, and read PostgreSQL's log",
  );
  for (const program of PROGRAMS) {
    const isThere = isConnected(program);
    when(!isThere, `no ${program} is connected`, START);
    const state = programs.find((one) => one.program === program);
    const last = state?.last_heartbeat_ms ?? null;
    const since =
      last === null ? 'has recorded a heartbeat' : `is alive: silent for ${seconds(last)}`;
    const isSilent = isThere && (state?.alive ?? 0) === 0;
    when(isSilent && !isHanging, `no ${program} ${since}`, START);
  }
  for (const fault of new Set(programs.flatMap(({ faults }) => Object.keys(faults)))) {
    const reporters = programs
      .filter(({ faults }) => fault in faults)
      .map(({ program, alive, faults }) => `${program} (${faults[fault]} of ${alive})`);
    when(true, `${fault}, as reported by ${reporters.join(', ')}`, helpFor(fault));
  }
}

function checkPublication(facts: Facts, when: When): void {
  const { log, programs, publication } = facts;
  when(
    publication.refused !== null,
    `the publisher refuses to publish: ${publication.refused}`,
    "read the publisher's log: an operator has to decide (docs/runbooks.md)",
  );
  const publisherUp = programs.find((one) => one.program === 'publisher')?.up_ms ?? 0;
  const unpublished = publication.age_ms ?? publisherUp;
  when(
    log.leaves > 0 && unpublished > TIMEOUT_MS,
    `no publish cycle has succeeded for ${seconds(unpublished)}`,
    PUBLISHING,
  );
  when(
    facts.public_api.length === 0,
    'public API: not checked',
    'set PUBLIC_URL to the addresses of the public API, separated by commas',
  );
  for (const { url, ready, status, age_ms: age, refusal } of facts.public_api) {
    when(
      !ready,
      `the public API is down at ${url}: ${status}${refusal === null ? '' : `: ${refusal}`}`,
      'start the public API server (npm run facade), or read its log',
    );
    when(
      refusal !== null && (age ?? 0) > TIMEOUT_MS,
      `the public API at ${url} serves a snapshot that is ${seconds(age)} old: ${refusal}`,
      'read the log of the public API server: it names the fault of the newer snapshot',
    );
  }
}

function checkBacklogs({ batches, checkpoint, log, pending, verifier }: Facts, when: When): void {
  when(
    (pending.oldest_ms ?? 0) > (batches.open === 0 ? TIMEOUT_MS : BATCH_TIMEOUT_MS),
    `an admission has waited ${seconds(pending.oldest_ms)}`,
    "read the workers' logs; npm run board shows the queue",
  );
  // Compares the smaller of two ages: after a quiet time the last verdict and checkpoint are old, and the entry of a
  // batch item is as old as its acceptance.
  const stalledMs = Math.min(verifier.verified_ms_ago ?? Infinity, verifier.oldest_ms ?? 0);
  when(
    verifier.lag > 0 && stalledMs > TIMEOUT_MS,
    `the verifier is ${verifier.lag} leaves behind the log and makes no progress`,
    "read the verifier's log: newer proofs are not published",
  );
  const unsigned = checkpoint === null ? log.leaves : checkpoint.lag;
  const unsignedMs =
    checkpoint === null ? Infinity : Math.min(checkpoint.age_ms, checkpoint.oldest_ms ?? 0);
  when(
    unsigned > 0 && verifier.lag < unsigned && unsignedMs > TIMEOUT_MS,
    `no signed checkpoint covers the last ${unsigned} leaves`,
    'read the log of the publisher, which signs in every publish cycle',
  );
}

function checkHost(facts: Facts, when: When): void {
  const { snapshot_disk: disk, quorum_age_ms: quorum } = facts;
  when(
    disk !== null && disk.free_bytes < disk.size_bytes / 10,
    `the disk of the snapshots is nearly full: ${size(disk?.free_bytes ?? 0)} free`,
    'make room (docs/operate.md#growth-retention-archiving)',
  );
  when(
    (quorum ?? 0) > QUORUM_MS,
    `no checkpoint has met the witness quorum for ${seconds(quorum)}`,
    "read the publisher's log: it names the witnesses that fail",
  );
  for (const { kind, recorded, age_ms: age, failed_ms: failed } of facts.maintenance) {
    when(
      failed !== null,
      `${kind} found corruption ${ago(failed)} ago`,
      'read the output of fsck, or run fsck again (docs/runbooks.md#svcfsckfinding); the finding is cleared when one uninterrupted run of fsck checks registry and snapshot and finds nothing',
    );
    when(
      age > (MAINTENANCE_MS[kind] ?? Infinity),
      `the last ${kind} ${recorded ? `was ${ago(age)} ago` : 'is not recorded'}`,
      kind === 'fsck' ? 'npm run fsck' : 'make and verify a base backup, then run backup record',
    );
  }
  when(
    (facts.archive_age_ms ?? 0) > ARCHIVE_MS,
    `PostgreSQL has archived no WAL for ${ago(facts.archive_age_ms)}`,
    "read PostgreSQL's log: archive_command fails, or archive_timeout is missing",
  );
  when(
    facts.replication_lag_bytes > SLOT_BYTES,
    `a replication slot is ${size(facts.replication_lag_bytes)} behind`,
    'repair the standby of the slot, or drop the slot, because its WAL fills the disk',
  );
}
