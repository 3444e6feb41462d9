import { execFile } from 'node:child_process';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { nativeSha256 as sha256, nativeVerify as verify } from '#runtime/crypto/node';
import { packageRoot } from '#runtime/process/files';
import { runMonitor } from '#sdk/cli/monitor/run';
import { parseEntry } from '#protocol/entries';
import { fromUuid, packageIdOf } from '#sql/db/columns';
import { Erasure, Package, Revocation, ShareToken, type Act } from './acts.js';
import type { Client } from './client.js';
import type { ClientRequest, Batch } from './records.js';
import { forEach, until } from './pace.js';
import { differingStatuses, expectedOf, pathOf } from './public.js';
import { batchesOf, batchResults, singlesOf } from './completion.js';
import type { World } from './world.js';

export interface Audited {
  lost: string[];
  double: string[];
  /** Problems that are neither a loss nor a duplicate. */
  wrong: string[];
}

const SAMPLE = 8;
const RESEND_MS = 30_000;

/** Checks that nothing acknowledged is lost and nothing is duplicated, after everything is complete. */
export async function audit(
  world: World,
  client: Client,
  { requests, acts }: { requests: ClientRequest[]; acts: readonly Act[] },
): Promise<Audited> {
  const { records } = client;
  const found: Audited = { lost: [], double: [], wrong: [] };
  // An engine limits how many batches of a tenant are in progress, so a rejected batch is not lost.
  const sendAgain = (one: ClientRequest): Promise<boolean> =>
    until(() => client.send(one), RESEND_MS, 100);
  await forEach(singlesOf(requests), async (single) => {
    // An erasure frees the deduplication key, so a repeated body would be a new admission.
    if (single.isErased || (await sendAgain(single))) return;
    found.lost.push(`a repeated request got no receipt of ${single.proofId ?? ''}`);
  });
  await forEach(batchesOf(requests), async (batch) => {
    if (!(await sendAgain(batch))) found.lost.push(`${nameOf(batch)} is not accepted again`);
    const isSame = async (): Promise<boolean> => {
      const again = await batchResults(client, batch).catch(() => null);
      return JSON.stringify(again) === JSON.stringify(batch.proofIds);
    };
    if (!(await until(isSame, RESEND_MS, 100))) {
      found.lost.push(`the results of ${nameOf(batch)} have changed`);
    }
  });
  await forEach(acts, async (act) => {
    await act
      .audit(world, found)
      .catch((error: unknown) => found.lost.push(`${act.what}: ${String(error)}`));
    const differing = await differingStatuses(world.publicUrl, act.expectedStatuses());
    found.wrong.push(...differing.map(({ problem }) => `after ${act.what} ${problem}`));
  });
  await auditRevocations(world, client, found);
  await auditRows(world, client, found);
  await auditTokens(world, client, found);
  found.lost.push(...records.broken.splice(0));
  found.wrong.push(...records.wrong.splice(0));
  await auditLog(world, client, found);
  await auditPublic(world, client, requests, found);
  found.wrong.push(...(await runFsck(world)));
  return found;
}

const nameOf = ({ batchId }: Batch): string => `batch ${batchId ?? ''}`;

/** Checks that the log contains each requested revocation once, and no other revocations. */
async function auditRevocations(world: World, client: Client, found: Audited): Promise<void> {
  const rows = await world.database.sql<{ body: Buffer }[]>`
    select body from svc.log_entry where kind = 2`;
  const left = new Set(
    client.acts.sent
      .filter((act) => act instanceof Revocation)
      .map(({ single, kind }) => `${kind} of ${single.proofId ?? ''}`),
  );
  for (const { body } of rows) {
    const entry = parseEntry(body);
    if (entry.type !== 'status') continue;
    const name = `${entry.artifact_kind} of ${entry.proof_id}`;
    if (!left.delete(name)) found.double.push(`the log revokes the ${name} without a request`);
  }
  for (const name of left) found.lost.push(`the log does not revoke the ${name}`);
}

/** Checks that the registry contains exactly the requested packages and erasures. */
async function auditRows({ database }: World, client: Client, found: Audited): Promise<void> {
  const { sent } = client.acts;
  const packages = await database.sql<{ id: string }[]>`
    select package_id::text as id from svc.trust_package`;
  const erased = await database.sql<{ id: string }[]>`
    select proof_id::text as id from svc.erasure
    union select proof_id::text from svc.intake where request is null`;
  const compare = (what: string, present: string[], requested: (string | null)[]): void => {
    const unrequested = present.filter((id) => !requested.includes(id));
    const missing = requested.filter((id) => !present.includes(id ?? ''));
    found.double.push(...unrequested.map((id) => `${what} ${id} was never requested`));
    found.lost.push(...missing.map((id) => `${what} ${id ?? ''} is missing`));
  };
  compare(
    'package',
    packages.map(({ id }) => packageIdOf(id)),
    sent.filter((act) => act instanceof Package).map(({ packageId }) => packageId),
  );
  compare(
    'erasure',
    erased.map(({ id }) => fromUuid(id)),
    sent.filter((act) => act instanceof Erasure).map(({ proofId }) => proofId),
  );
}

/**
 * Checks that there are at most as many unacknowledged tokens as unanswered requests. The tenant finds these tokens in the list
 * and revokes them, as the documentation advises.
 */
async function auditTokens(world: World, client: Client, found: Audited): Promise<void> {
  const tokens = client.acts.sent.filter((act) => act instanceof ShareToken);
  const known = new Set(tokens.map(({ tokenHash }) => tokenHash));
  const unknown = tokens.reduce((sum, token) => sum + token.unknown, 0);
  const rows = await world.database.sql<{ hash: string; is_revoked: boolean }[]>`
    select encode(token_hash, 'hex') as hash,
      exists (select from svc.share_revocation r where r.token_hash = t.token_hash) as is_revoked
    from svc.share_token t`;
  const unacknowledged = rows.filter(({ hash }) => !known.has(hash));
  if (unacknowledged.length > unknown) {
    found.double.push(`${String(unacknowledged.length - unknown)} unrequested share tokens`);
  }
  const live = unacknowledged.filter((row) => !row.is_revoked);
  if (live.length === 0) return;
  const url = `${client.urlFor({ n: 0, attempts: 1 })}/v1/share-tokens`;
  const listed = new Set<string>();
  for (let cursor: string | null = ''; cursor !== null;) {
    const from = cursor === '' ? '' : `&cursor=${cursor}`;
    const [, text] = await client.call(`${url}?limit=200${from}`, 'GET');
    const page = JSON.parse(text) as {
      share_tokens: { token_hash: string }[];
      next_cursor: string | null;
    };
    for (const token of page.share_tokens) listed.add(token.token_hash);
    cursor = page.next_cursor;
  }
  for (const { hash } of live) {
    if (!listed.has(hash)) found.wrong.push(`share token ${hash} is live and not in the list`);
    const [status] = await client.call(`${url}/${hash}`, 'DELETE');
    if (status !== 204)
      found.wrong.push(`share token ${hash} cannot be revoked: ${String(status)}`);
  }
}

/** Checks that the log contains one proof for every deduplication key, and no unrequested proof. */
async function auditLog({ database }: World, client: Client, found: Audited): Promise<void> {
  const { sql } = database;
  const rows = await sql<{ id: string; times: number }[]>`
    select proof_id::text as id, count(*)::int as times from svc.log_entry where kind = 1
    group by proof_id`;
  const times = new Map(rows.map((row) => [fromUuid(row.id), row.times]));
  const promised = new Set<string>();
  const ids = [...client.records.requests, ...client.acts.sent].flatMap((one) =>
    'kind' in one && one.kind === 'single' ? (one.proofId ?? []) : one.proofIds,
  );
  for (const proofId of ids) {
    if (promised.has(proofId)) found.double.push(`two admissions have the proof id ${proofId}`);
    promised.add(proofId);
    if (!times.has(proofId)) found.lost.push(`${proofId} is not in the log`);
  }
  for (const [proofId, count] of times) {
    if (count > 1) found.double.push(`${proofId} is in the log ${String(count)} times`);
    if (!promised.has(proofId)) found.double.push(`${proofId} is in the log without a request`);
  }
  const same = await sql<{ times: number }[]>`
    select count(*)::int as times from svc.intake i join svc.log_entry using (proof_id)
    where i.request_hash is not null and i.approves is null
    group by i.tenant_no, i.lane, i.request_hash having count(*) > 1`;
  for (const row of same) found.double.push(`a request has ${String(row.times)} proofs`);
  const failing = await sql`select from svc.verdict where outcome = 'fail'`;
  if (failing.length > 0)
    found.wrong.push(`${String(failing.length)} leaves have the verdict "fail"`);
}

async function auditPublic(
  world: World,
  { records }: Client,
  requests: ClientRequest[],
  found: Audited,
): Promise<void> {
  const expected = requests.map((one) => {
    if (one.kind === 'batch') return { path: `proof/${one.proofIds[0] ?? ''}`, status: 'VALID' };
    const kind = one.ends && records.admitted.includes(one) ? 'passport' : 'proof';
    return { path: pathOf(one, kind), status: expectedOf(one, kind) };
  });
  const step = Math.ceil(expected.length / SAMPLE);
  const sample = expected.filter(
    ({ status }, at) => at % step === 0 || at === expected.length - 1 || status === 'EXPIRED',
  );
  const differing = await differingStatuses(world.publicUrl, sample);
  found.wrong.push(...differing.map(({ problem }) => problem));
}

/**
 * The findings of fsck about the registry and the snapshot, or only about the snapshot. fsck runs in its own process,
 * because it would block this process, which relays the connections of the programs, for seconds.
 */
export async function runFsck(world: World, only?: 'snapshot'): Promise<string[]> {
  const state = join(world.dir, `fsck-${only ?? 'both'}.json`);
  const options = ['--json', '--restart', '--state', state];
  if (only !== undefined) options.push('--only', only);
  const databaseUrl = world.database.running.urlFor('svc_fsck');
  const env = { ...process.env, ...world.fsckEnv, DATABASE_URL: databaseUrl };
  const file = join(packageRoot, 'dist/programs/fsck.js');
  return promisify(execFile)(process.execPath, [file, ...options], { env }).then(
    () => [],
    ({ code, stdout, stderr }: { code: unknown; stdout: string; stderr: string }) => [
      `fsck exited with ${String(code)}: ${(stdout + stderr).trim().slice(0, 2000)}`,
    ],
  );
}

/** Follows the public log from its first leaf; returns its alarms. */
export async function monitorLog({ publicUrl, logVkey, dir }: World): Promise<string[]> {
  const pass = await runMonitor(
    { sha256, verify },
    {
      sources: [publicUrl],
      logVkeys: [logVkey],
      directory: join(dir, 'monitor'),
      watch: [],
      intervalMs: 1,
      once: true,
    },
    { finding: () => undefined, passed: () => undefined },
    new AbortController().signal,
  );
  if (pass?.isReachable !== true) return ['monitor: the log is unreachable'];
  return pass.alarms.map((alarm) => `monitor: ${JSON.stringify(alarm)}`);
}
