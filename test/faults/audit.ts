import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { check } from '#programs/fsck/main';
import { fromUuid } from '#sql/ids';
import type { Client } from './client.js';
import type { Asked, Batch, Single } from './memory.js';
import { batchesOf, batchResults, forEach, singlesOf } from './settle.js';
import type { World } from './world.js';

export interface Audited {
  lost: string[];
  double: string[];
  /** What else is not as it must be. */
  wrong: string[];
}

const SAMPLE = 8;

/** After a fault, and when everything is settled: nothing acknowledged is lost, nothing is double. */
export async function audit(world: World, client: Client, asked: Asked[]): Promise<Audited> {
  const { memory } = client;
  const found: Audited = { lost: [], double: [], wrong: [] };
  await forEach(singlesOf(asked), async (single) => {
    if (!(await sendAgain(client, single)))
      found.lost.push(`no receipt again of ${single.proofId ?? ''}`);
  });
  await forEach(batchesOf(asked), (batch) => auditBatch(client, batch, found));
  found.lost.push(...memory.broken.splice(0));
  found.wrong.push(...memory.wrong.splice(0));
  await auditLog(world, client, found);
  await auditPublic(world, asked, found);
  found.wrong.push(...(await runFsck(world)));
  return found;
}

const PATIENCE_MS = 30_000;

/** An engine takes few batches of a tenant at a time, and says so; that is no loss. */
async function sendAgain(client: Client, one: Asked): Promise<boolean> {
  const began = performance.now();
  while (performance.now() - began < PATIENCE_MS) {
    if (await client.send(one)) return true;
    await sleep(100);
  }
  return false;
}

async function auditBatch(client: Client, batch: Batch, found: Audited): Promise<void> {
  // Sent again it is the same batch, and its items are what they were.
  if (!(await sendAgain(client, batch)))
    found.lost.push(`batch ${batch.batchId ?? ''} is not taken again`);
  const again = await batchResults(client, batch).catch(() => null);
  if (JSON.stringify(again) !== JSON.stringify(batch.proofIds)) {
    found.lost.push(`batch ${batch.batchId ?? ''} has other results now`);
  }
}

/** The log has every identity once, and nothing that nobody asked for. */
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
    if (!promised.has(proofId)) found.double.push(`${proofId} is in the log and nobody's`);
  }
  const same = await sql<{ times: number }[]>`
    select count(*)::int as times from svc.intake i join svc.proof p using (proof_id)
    group by i.tenant_no, i.lane, i.request_hash having count(*) > 1`;
  for (const row of same) found.double.push(`a request has ${String(row.times)} proofs`);
  const [failing] = await sql<{ n: number }[]>`
    select count(*)::int as n from svc.verdict where outcome = 'fail'`;
  if (failing?.n !== 0) found.wrong.push(`${String(failing?.n)} verdicts are "fail"`);
}

async function auditPublic(world: World, asked: Asked[], found: Audited): Promise<void> {
  const ids = asked.flatMap((one: Single | Batch) =>
    one.kind === 'single' ? [one.proofId ?? ''] : one.proofIds.slice(0, 1),
  );
  const step = Math.ceil(ids.length / SAMPLE);
  const sample = ids.filter((_, at) => at % step === 0 || at === ids.length - 1);
  await forEach(sample, async (proofId) => {
    const response = await fetch(`${world.publicUrl}/api/public/verify/proof/${proofId}`);
    const { verification } = (await response.json()) as {
      verification?: { verification_status: string; can_assert_validity: boolean };
    };
    const isValid =
      response.status === 200 &&
      verification?.verification_status === 'VALID' &&
      verification.can_assert_validity;
    if (!isValid) {
      const said = verification?.verification_status ?? '';
      found.wrong.push(`the public is told ${String(response.status)} ${said} of ${proofId}`);
    }
  });
}

/** The registry and the snapshot, from the outside. */
async function runFsck(world: World): Promise<string[]> {
  let said = '';
  const state = join(world.dir, 'fsck.json');
  const code = await check(
    ['--json', '--restart', '--state', state],
    { out: (text) => (said += text), err: (text) => (said += text) },
    { ...world.fsckEnv, DATABASE_URL: world.database.urlFor('svc_fsck') },
  );
  return code === 0 ? [] : [`fsck exited with ${String(code)}: ${said.trim().slice(0, 2000)}`];
}
