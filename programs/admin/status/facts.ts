import { listLanes } from '#sql/tenants/administration';
import type { Db } from '#sql/db/transaction';
import { publishing, readHeartbeats } from '#sql/ops/heartbeats';
import {
  databaseBytes,
  logAndCheckpoint,
  pendingNow,
  verifierPlace,
} from '#sql/ops/metrics-queries';
import { readOverview, type RoleInUse } from '#sql/ops/status-queries';
import { activePolicy } from '#sql/admissions/policies';
import { verifiedPrefix } from '#sql/log/verdicts';
import { programFacts, type ProgramFacts } from './programs.js';
import type { PublicApi } from './public-api.js';

/** State of the database and the public API at about one moment. Times in milliseconds. */
export interface Facts {
  lanes: { environment: string; open: boolean }[];
  policy: string | null;
  tenants_allowlisted: number;
  api_keys_active: number;
  aep_keys_active: string[];
  /** Keys with which connected workers sign. */
  worker_keys: string[];
  programs: ProgramFacts[];
  /** Age of the last snapshot, and why the publisher refuses to publish the next. */
  publication: { age_ms: number | null; refused: string | null };
  /** Empty when no address is configured, which is reported as a problem. */
  public_api: PublicApi[];
  log: { leaves: number };
  pending: { admissions: number; oldest_ms: number | null };
  batches: { open: number; oldest_ms: number | null };
  verifier: {
    lag: number;
    scrubbed_to: number;
    failing_leaves: number;
    /** Leaves that fail only because a compromised key signed them; not counted as failing. */
    voided_leaves: number;
    verified_ms_ago: number | null;
  };
  checkpoint: { tree_size: number; lag: number; age_ms: number } | null;
  database: { bytes: number };
  roles: RoleInUse[];
}

export async function readFacts(
  sql: Db,
  activeAepKeys: string[],
  publicApi: PublicApi[],
): Promise<Facts> {
  const pending = await pendingNow(sql);
  const { leaves, checkpoint } = await logAndCheckpoint(sql);
  const place = await verifierPlace(sql);
  const verified = await verifiedPrefix(sql);
  const lanes = await listLanes(sql);
  const policy = await activePolicy(sql);
  const bytes = await databaseBytes(sql);
  const heartbeats = await readHeartbeats(sql);
  // Read last, so that its clock is later than everything read before.
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
    worker_keys: overview.workerKeys,
    programs: programFacts(heartbeats, overview.now),
    publication: { age_ms: sinceOrNull(publishedAt), refused },
    public_api: publicApi,
    log: { leaves },
    pending: { admissions: pending.admissions, oldest_ms: sinceOrNull(pending.oldestAt) },
    batches: { open: overview.batches.open, oldest_ms: sinceOrNull(overview.batches.oldestAt) },
    verifier: {
      lag: place.lag,
      scrubbed_to: place.scrubbedTo,
      failing_leaves: place.failing,
      voided_leaves: place.voided,
      verified_ms_ago: sinceOrNull(verified?.verifiedAt ?? null),
    },
    checkpoint:
      checkpoint === null
        ? null
        : {
            tree_size: checkpoint.treeSize,
            lag: Math.max(0, leaves - checkpoint.treeSize),
            age_ms: since(checkpoint.signedAt),
          },
    database: { bytes },
    roles: overview.roles,
  };
}
