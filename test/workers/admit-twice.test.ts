import { expect, it } from 'vitest';
import { nativeSha256 } from '#runtime/crypto/node';
import { acceptIntake } from '#sql/admissions/intake';
import { readProof } from '#sql/proofs/read';
import { processAdmissions } from '#workers/admit/process';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

it('proof that is processed twice > has identical bytes', async () => {
  const item = registry.item();
  await acceptIntake(registry.engine, [item]);
  await processAdmissions(registry.admit, [item.proofId]);
  const first = await readProof(registry.engine, registry.tenantNo, item.proofId);
  // Removes the log entry, and processes the admission again.
  await db.sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    await tx`delete from svc.log_entry where kind = 1`;
    await tx`delete from svc.tile`;
    await tx`update svc.log_head set tree_size = 1`;
    const [key] = await tx<{ body: Buffer }[]>`select body from svc.log_entry where kind = 3`;
    const leaf = nativeSha256(Buffer.concat([Buffer.of(0), key!.body]));
    await tx`insert into svc.tile values (0, 0, ${Buffer.from(leaf)})`;
    await tx`insert into svc.intake_pending select proof_id, accepted_at from svc.intake`;
  });
  await processAdmissions(registry.admit, [item.proofId]);
  const second = await readProof(registry.engine, registry.tenantNo, item.proofId);
  expect(second).toEqual(first);
});
