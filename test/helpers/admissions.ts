import { fromHex, utf8 } from '#protocol/bytes';
import { documentHash } from '#protocol/hash';
import type { JsonValue } from '#protocol/json';
import { aepSchema, type Aep } from '#protocol/schemas/aep';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake, type IntakeItem } from '#sql/admissions/accept';
import { readProof } from '#sql/proofs/read';
import { readOutcomes, type Settlement } from '#sql/admissions/outcomes';
import type { TestRegistry } from './registry.js';

/** An item whose request has other fields, and the hash that goes with them. */
export function itemWith(registry: TestRegistry, fields: Record<string, JsonValue>): IntakeItem {
  const item = registry.item();
  const plain = JSON.parse(Buffer.from(item.request).toString()) as Record<string, JsonValue>;
  const request = { ...plain, ...fields };
  return {
    ...item,
    request: utf8(JSON.stringify(request)),
    requestHash: fromHex(documentHash(nativeSha256, request)),
  };
}

/** Accepts it, for somebody to settle. */
export async function accepted(registry: TestRegistry, item: IntakeItem): Promise<string> {
  await acceptIntake(registry.engine, [item]);
  return item.proofId;
}

/** How it was settled; undefined while it waits. */
export async function stateOf(
  registry: TestRegistry,
  id: string,
  tenantNo = registry.tenantNo,
): Promise<Settlement | undefined> {
  return (await readOutcomes(registry.engine, [{ tenantNo, id }])).get(id);
}

/** What was signed. */
export async function aepOf(
  registry: TestRegistry,
  id: string,
  tenantNo = registry.tenantNo,
): Promise<Aep> {
  const proof = await readProof(registry.engine, tenantNo, id);
  return aepSchema.parse(JSON.parse(proof?.aep?.toString() ?? 'null'));
}
