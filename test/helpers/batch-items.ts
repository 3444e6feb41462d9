import { randomBytes } from 'node:crypto';
import { expect } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptBatch } from '#sql/batches/accept';
import type { TestDatabase } from './database.js';
import { issueKey } from './engine.js';
import { TENANT, type TestRegistry } from './registry.js';

export interface AcceptedBatch {
  hex: string;
  /** The proof ids of its items. */
  ids: string[];
}

/** A batch that is durable, and that no worker was told of. */
export async function acceptedBatch(
  registry: TestRegistry,
  count: number,
  tenantId = TENANT,
): Promise<AcceptedBatch> {
  const [tenant] = await registry.admin<{ no: number }[]>`
    select tenant_no as no from svc.tenant where tenant_id = ${tenantId}`;
  const items = Array.from({ length: count }, (_, index) => {
    const item = registry.item();
    const said = JSON.parse(Buffer.from(item.request).toString()) as Record<string, JsonValue>;
    const request = { ...said, tenant_id: tenantId };
    return {
      index,
      proofId: item.proofId,
      lane: item.lane,
      request: utf8(JSON.stringify(request)),
      requestHash: documentHash(nativeSha256, request),
      fixtureRef: null,
    };
  });
  const hex = registry.item().proofId;
  const most = 1_000_000;
  const outcome = await acceptBatch(
    registry.engine,
    {
      batchId: `batch_${hex}`,
      tenantNo: tenant?.no ?? 0,
      keyNo: await keyOf(registry, tenant?.no ?? 0, tenantId),
      itemsHash: randomBytes(32),
      requestId: 'request',
      idempotencyKey: null,
      total: count,
      items,
      problems: new Map(),
      salts: randomBytes(count * 32),
    },
    { admissions: most, batches: most, own: most },
  );
  if (outcome.outcome !== 'accepted') throw new Error(outcome.outcome);
  return { hex, ids: items.map(({ proofId }) => proofId) };
}

/** The number of a key of the tenant's, that holds. */
export async function keyOf(
  registry: TestRegistry,
  tenantNo: number,
  tenantId: string,
): Promise<number> {
  await issueKey(registry, { tenantId });
  const [key] = await registry.admin<{ no: number }[]>`
    select max(key_no)::int as no from svc.api_key where tenant_no = ${tenantNo}`;
  return key?.no ?? 0;
}

/** Waits until every item of them is a proof. */
export async function workItems(db: TestDatabase, batches: AcceptedBatch[]): Promise<void> {
  const hexes = batches.map(({ hex }) => hex);
  const all = batches.reduce((sum, { ids }) => sum + ids.length, 0);
  const admitted = async (): Promise<number> => {
    const [row] = await db.sql<{ n: number }[]>`
      select sum(admitted)::int as n from svc.batch_progress
      where replace(batch_id::text, '-', '') = any(${hexes})`;
    return row?.n ?? 0;
  };
  await expect.poll(admitted, { timeout: 40_000, interval: 50 }).toBe(all);
}
