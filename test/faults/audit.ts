import { join } from 'node:path';
import { check } from '#programs/fsck/main';
import { fromUuid } from '#sql/db/columns';
import type { Act } from './acts/act.js';
import { auditActs } from './acts/audit.js';
import { expectedOf, pathOf } from './acts/expected.js';
import type { Client } from './client.js';
import { forEach } from './for-each.js';
import type { Asked, Batch } from './memory.js';
import { until } from './pace.js';
import { readStatuses } from './public.js';
import { batchesOf, batchResults, singlesOf } from './settle.js';
import type { World } from './world.js';

export interface Audited {
  lost: string[];
  double: string[];
  /** Other problems. */
  wrong: string[];
}

const SAMPLE = 8;

/** After a fault, and when everything is settled: nothing acknowledged is lost, nothing is double. */
export async function audit(
  world: World,
  client: Client,
  { asked, acts }: { asked: Asked[]; acts: readonly Act[] },
): Promise<Audited> {
  const { memory } = client;
  const found: Audited = { lost: [], double: [], wrong: [] };
  await forEach(singlesOf(asked), async (single) => {
    // An erasure frees the deduplication key: the same body would be another admission.
    if (single.isErased) return;
    if (!(await sendAgain(client, single)))
      found.lost.push(`no receipt again of ${single.proofId ?? ''}`);
  });
  await forEach(batchesOf(asked), (batch) => auditBatch(client, batch, found));
  await auditActs(world, client, acts, found);
  found.lost.push(...memory.broken.splice(0));
  found.wrong.push(...memory.wrong.splice(0));
  await auditLog(world, client, found);
  await auditPublic(world, asked, found);
  found.wrong.push(...(await runFsck(world)));
  return found;
}

const TIMEOUT_MS = 30_000;

/** An engine takes few batches of a tenant at a time, and says so; that is no loss. */
const sendAgain = (client: Client, one: Asked): Promise<boolean> =>
  until(() => client.send(one), TIMEOUT_MS, 100);

async function auditBatch(client: Client, batch: Batch, found: Audited): Promise<void> {
  // Sent again it is the same batch, and its items are what they were.
  if (!(await sendAgain(client, batch)))
    found.lost.push(`batch ${batch.batchId ?? ''} is not taken again`);
  const again = await batchResults(client, batch).catch(() => null);
  if (JSON.stringify(again) !== JSON.stringify(batch.proofIds)) {
    found.lost.push(`batch ${batch.batchId ?? ''} has other results now`);
  }
}

/** The log contains every deduplication key once, and no unrequested proof. */
async function auditLog(world: World, client: Client, found: Audited): Promise<void> {
  const { memory } = client;
  const { sql } = world.database;
  const rows = await sql<{ id: string; times: number }[]>`
    select proof_id::text as id, count(*)::int as times from svc.log_entry where kind = 1
    group by proof_id`;
  const times = new Map(rows.map((row) => [fromUuid(row.id), row.times]));
  const promised = new Set<string>();
  const claim = (proofId: string | null): void => {
    if (proofId === null) return;
    if (promised.has(proofId)) found.double.push(`${proofId} was given to two identities`);
    promised.add(proofId);
  };
  for (const one of memory.asked) {
    if (one.kind === 'single') claim(one.proofId);
    else one.proofIds.forEach(claim);
  }
  for (const proofId of promised) {
    if (!times.has(proofId)) found.lost.push(`${proofId} is not in the log`);
  }
  for (const [proofId, count] of times) {
    if (count > 1) found.double.push(`${proofId} is in the log ${String(count)} times`);
    if (!promised.has(proofId)) found.double.push(`${proofId} is in the log without a request`);
  }
  const same = await sql<{ times: number }[]>`
    select count(*)::int as times from svc.intake i join svc.proof p using (proof_id)
    where i.request_hash is not null
    group by i.tenant_no, i.lane, i.request_hash having count(*) > 1`;
  for (const row of same) found.double.push(`a request has ${String(row.times)} proofs`);
  const [failing] = await sql<{ n: number }[]>`
    select count(*)::int as n from svc.verdict where outcome = 'fail'`;
  if (failing?.n !== 0) found.wrong.push(`${String(failing?.n)} verdicts are "fail"`);
}

async function auditPublic(world: World, asked: Asked[], found: Audited): Promise<void> {
  const told = asked.map((one) =>
    one.kind === 'single'
      ? { path: pathOf(one, 'proof'), status: expectedOf(one, 'proof') }
      : { path: `proof/${one.proofIds[0] ?? ''}`, status: 'VALID' },
  );
  const step = Math.ceil(told.length / SAMPLE);
  const sample = told.filter((_, at) => at % step === 0 || at === told.length - 1);
  for (const { path, said, status } of await readStatuses(world.publicUrl, sample)) {
    if (said !== status) found.wrong.push(`the public status of ${path} is ${said}`);
  }
}

/** The registry and the snapshot, from the outside; or one of them. */
export async function runFsck(world: World, only?: 'snapshot'): Promise<string[]> {
  let said = '';
  const state = join(world.dir, `fsck-${only ?? 'both'}.json`);
  const code = await check(
    ['--json', '--restart', '--state', state, ...(only === undefined ? [] : ['--only', only])],
    { out: (text) => (said += text), err: (text) => (said += text) },
    { ...world.fsckEnv, DATABASE_URL: world.database.urlFor('svc_fsck') },
  );
  return code === 0 ? [] : [`fsck exited with ${String(code)}: ${said.trim().slice(0, 2000)}`];
}
