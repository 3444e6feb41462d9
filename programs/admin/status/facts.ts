import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import type { StatusConfig } from '#runtime/config';
import { listLanes } from '#sql/tenants/administration';
import type { Db } from '#sql/db/transaction';
import {
  publishing,
  readHeartbeats,
  type Heartbeat,
  readUpkeep,
  databaseBytes,
  logAndCheckpoint,
  pendingNow,
  verifierPlace,
  readOverview,
} from '#sql/ops/queries';
import { activePolicy } from '#sql/admissions/policies';

export type Facts = Awaited<ReturnType<typeof readFacts>>;

/** State of the database and the public API at about one moment. Times in milliseconds. */
export async function readFacts(sql: Db, activeAepKeys: string[], publicApi: PublicApi[]) {
  const pending = await pendingNow(sql);
  const { leaves, checkpoint } = await logAndCheckpoint(sql);
  const place = await verifierPlace(sql);
  const lanes = await listLanes(sql);
  const policy = await activePolicy(sql);
  const bytes = await databaseBytes(sql);
  const heartbeats = await readHeartbeats(sql);
  const upkeep = await readUpkeep(sql);
  // The last query, so that its `now` is later than every time in the results above.
  const overview = await readOverview(sql);
  const since = (at: number): number => Math.max(0, overview.now - at);
  const sinceOrNull = (at: number | null): number | null => (at === null ? null : since(at));
  const { publishedAt, refused } = publishing(heartbeats);
  return {
    lanes: lanes.map(({ environment, open }) => ({ environment, open })),
    policy: policy?.toString('hex') ?? null,
    tenants_allowlisted: overview.allowlisted,
    api_keys_active: overview.apiKeys,
    aep_keys_active: activeAepKeys,
    /** Keys with which connected workers sign. */
    worker_keys: overview.workerKeys,
    programs: programFacts(heartbeats, overview.now),
    /** Time since a cycle last published a snapshot or found it current, and why the publisher refuses to publish. */
    publication: { age_ms: sinceOrNull(publishedAt), refused },
    /** Empty when no address is configured; `admin status` reports that as a problem. */
    public_api: publicApi,
    log: { leaves },
    pending: { admissions: pending.admissions, oldest_ms: pending.oldestMs },
    batches: { open: overview.batches.open, oldest_ms: sinceOrNull(overview.batches.oldestAt) },
    verifier: {
      lag: place.lag,
      scrubbed_to: place.scrubbedTo,
      failing_leaves: place.failing,
      /** Leaves that fail only because a compromised key signed them; not counted as failing. */
      voided_leaves: place.voided,
      verified_ms_ago: sinceOrNull(place.verifiedAt),
      /** Age of the oldest leaf without a verdict. */
      oldest_ms: sinceOrNull(place.oldestAt),
    },
    checkpoint: checkpoint && {
      tree_size: checkpoint.treeSize,
      lag: Math.max(0, leaves - checkpoint.treeSize),
      age_ms: since(checkpoint.signedAt),
      /** Age of the oldest leaf that the checkpoint does not cover. */
      oldest_ms: sinceOrNull(checkpoint.oldestAt),
    },
    database: { bytes },
    ...publisherFacts(heartbeats, overview.now),
    /** The last fsck and backup; before the first, `age_ms` counts from the migration. */
    maintenance: upkeep.maintenance.map(({ kind, since: began, endedAt, failedAt }) => ({
      kind,
      recorded: endedAt !== null,
      age_ms: since(endedAt ?? began),
      /** Age of the fsck run whose findings no clean run has cleared. */
      failed_ms: sinceOrNull(failedAt),
    })),
    /** Milliseconds since the last WAL segment was archived; null without an archive. */
    archive_age_ms: upkeep.archiveAgeMs,
    replication_lag_bytes: upkeep.replicationBytes,
    roles: overview.roles,
  };
}

/** Programs that record heartbeats. */
export const PROGRAMS = ['engine', 'worker', 'verifier', 'publisher'] as const;

/** A program counts as alive for this long after a heartbeat: five intervals. */
const ALIVE_MS = 10_000;

const isAlive = (beatAt: number, now: number): boolean =>
  // Ignores heartbeats from the future, recorded before the database's clock was set back.
  Math.abs(now - beatAt) <= ALIVE_MS;

/** From live publishers: the fullest snapshot disk, and the longest time since a witness quorum. */
function publisherFacts(heartbeats: readonly Heartbeat[], now: number) {
  const found = heartbeats
    .filter(({ program, beatAt }) => program === 'publisher' && isAlive(beatAt, now))
    .map(({ readiness }) => readiness as PublisherDetails);
  const disks = found.flatMap(({ snapshot_disk: disk }) => disk ?? []);
  const share = (disk: Disk): number => disk.free_bytes / disk.size_bytes;
  const ages = found.flatMap(({ quorum_ms_ago: age }) => age ?? []);
  return {
    snapshot_disk: disks.sort((a, b) => share(a) - share(b))[0] ?? null,
    /** Longest time in milliseconds since a witness quorum; null without witnesses. */
    quorum_age_ms: ages.length === 0 ? null : Math.max(...ages),
  };
}

interface Disk {
  free_bytes: number;
  size_bytes: number;
}

interface PublisherDetails {
  snapshot_disk?: Disk | null;
  quorum_ms_ago?: number | null;
}

/** A program's state according to its heartbeats. Times in milliseconds. */
function programFacts(heartbeats: readonly Heartbeat[], now: number) {
  return PROGRAMS.map((program) => {
    const all = heartbeats.filter((one) => one.program === program);
    const alive = all.filter(({ beatAt }) => isAlive(beatAt, now));
    /** Parts reported as down, failing, stalled, silent or paused, each with the number of instances. */
    const faults: Record<string, number> = {};
    for (const fault of alive.flatMap(({ readiness }) => faultsIn(readiness))) {
      faults[fault] = (faults[fault] ?? 0) + 1;
    }
    const last = Math.max(...all.map(({ beatAt }) => beatAt));
    const first = Math.min(...alive.map(({ startedAt }) => startedAt));
    return {
      program,
      /** Instances with a recent heartbeat. */
      alive: alive.length,
      last_heartbeat_ms: all.length === 0 ? null : Math.max(0, now - last),
      /** Uptime of the oldest live instance. */
      up_ms: alive.length === 0 ? null : Math.max(0, now - first),
      faults,
    };
  });
}

const FAULTS: readonly unknown[] = ['down', 'failing', 'stalled', 'silent', 'paused'];

export const UNKNOWN_SIGNER = 'unknown signer';

/** The faults that members of a readiness document report, at any depth, such as `queue down`. */
function faultsIn(readiness: object): string[] {
  // Reports only the unknown signer: the publish cycles fail because of it.
  if ('unknown_signer' in readiness) {
    return [`${UNKNOWN_SIGNER} ${String(readiness.unknown_signer)}`];
  }
  return Object.entries(readiness).flatMap(([name, value]: [string, unknown]) => {
    if (FAULTS.includes(value)) return [`${name} ${String(value)}`];
    return typeof value === 'object' && value !== null ? faultsIn(value) : [];
  });
}

/** The answer of a public API address to `/readyz`. */
interface PublicApi {
  url: string;
  ready: boolean;
  /** The `status` in the response, or why no response arrived. */
  status: string;
  /** Age of the served snapshot in milliseconds, and why no newer snapshot is served. */
  age_ms: number | null;
  refusal: string | null;
}

const TIMEOUT_MS = 5_000;

/** Checks every configured address; by default the address of an `npm start` on this DATA_DIR. */
export async function checkPublicApi({ publicUrls, dataDir }: StatusConfig): Promise<PublicApi[]> {
  const urls = publicUrls.length > 0 ? publicUrls : await startedHere(dataDir);
  return Promise.all(urls.map(check));
}

async function startedHere(dataDir: string): Promise<string[]> {
  try {
    const ready = JSON.parse(await readFile(join(dataDir, 'ready.json'), 'utf8')) as object;
    return 'public_url' in ready ? [String(ready.public_url)] : [];
  } catch {
    return [];
  }
}

async function check(url: string): Promise<PublicApi> {
  const down = { url, ready: false, age_ms: null, refusal: null };
  try {
    const response = await fetch(`${url}/readyz`, { signal: AbortSignal.timeout(TIMEOUT_MS) });
    const answer = (await response.json().catch(() => null)) as Record<string, unknown> | null;
    const { status, age_ms: age, title } = answer ?? {};
    const refusal = typeof answer?.refusal === 'string' ? answer.refusal : null;
    if (response.ok && status === 'ready') {
      return {
        url,
        ready: true,
        status,
        age_ms: typeof age === 'number' ? age : null,
        refusal,
      };
    }
    const words =
      [status, title].find((one) => typeof one === 'string') ?? 'not an answer of the public API';
    return { ...down, refusal, status: `answers ${response.status}, ${words}` };
  } catch (error) {
    const { message, cause } = error as { message: string; cause?: { code?: unknown } };
    return { ...down, status: typeof cause?.code === 'string' ? cause.code : message };
  }
}
