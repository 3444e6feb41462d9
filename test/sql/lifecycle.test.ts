import { expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import { jwkThumbprint } from '#protocol/keys';
import { parseVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { AdministrationError } from '#sql/tenants/audit';
import { type Transaction, transaction } from '#sql/db/transaction';
import { appendKeyChange } from '#sql/lifecycle/signing-keys';
import { appendRevocation } from '#sql/lifecycle/revocations';
import { appendLogKeyChange } from '#sql/lifecycle/log-keys';
import { appendEntries, lockHead } from '#sql/log/append';
import { treeSize } from '#sql/log/log';
import { storeTraces } from '#sql/ops/traces';
import { admissionEnvelope, agentItem } from '../fixtures/agent.js';
import { type TestLog, testLog } from '../fixtures/checkpoints.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('file');

it('appendKeyChange > rejects the retirement of a key that was never activated', async () => {
  const stranger = { keyId: 'A'.repeat(43), publicKey: 'A'.repeat(43) };
  for (const change of ['retire', 'compromise'] as const) {
    const ended = appendKeyChange(registry.admin, {
      ...stranger,
      change,
      ...(change === 'compromise' ? { fromIndex: 0 } : {}),
    });
    await expect(ended).rejects.toThrow(/never activated/);
  }
});

it('appendKeyChange > rejects the activation of a log key', async () => {
  const { publicKey, vkey } = testLog(db);
  await appendLogKeyChange(registry.admin, parseVkey(vkey), 'activate');
  const keyId = jwkThumbprint(nativeSha256, publicKey);
  for (const use of ['aep', 'aep_root', 'verifier'] as const) {
    const key = { use, keyId, publicKey: toBase64Url(publicKey), change: 'activate' as const };
    const activated = appendKeyChange(registry.admin, key);
    await expect(activated).rejects.toThrow(
      'already in the log: if the list of keys shows it as active',
    );
  }
});

it('appendLogKeyChange > rejects a log key with the key id of another log key', async () => {
  // Two public keys without private keys, found among hashes.
  const [first, second] = [
    'test.example/ambiguous+4bb203ca+AfOmsCpYUSlkxjBE+Iipm625NNMWktVYzfBDXE0g6yAL',
    'test.example/ambiguous+4bb203ca+AS2nDriGlHxkfkztUnlyXd7ag3A9CrbPIBT2qwfZWUUq',
  ].map((vkey) => parseVkey(vkey));
  await appendLogKeyChange(registry.admin, first!, 'activate');
  const before = await treeSize(registry.engine);
  const activated = appendLogKeyChange(registry.admin, second!, 'activate');
  await expect(activated).rejects.toThrow('another log key of this log has the same key id');
  expect(await treeSize(registry.engine)).toBe(before);
});

it('appendLogKeyChange > counts a checkpoint that the database lost for the last key and for keys that never signed', async () => {
  const [last, unused, next, spare] = Array.from({ length: 4 }, () => testLog(db, 'test.example/lost')) as [TestLog, TestLog, TestLog, TestLog]; // prettier-ignore
  const change = (of: TestLog, to: 'activate' | 'retire') =>
    appendLogKeyChange(registry.admin, parseVkey(of.vkey), to);
  await last.publish();
  for (const log of [last, unused]) await change(log, 'activate');
  await transaction(db.sql, async (tx) => {
    const snapshot = { kind: 'snapshot' as const, at: Date.now(), body: Buffer.from('{}') };
    return appendEntries(tx, await lockHead(tx), [snapshot]);
  });
  const size = await treeSize(db.sql);
  await change(next, 'activate');
  for (const log of [last, unused]) {
    expect(await change(log, 'retire')).toMatchObject({ fromSize: size });
  }
  await next.publish();
  expect(await change(last, 'retire')).toMatchObject({ fromSize: size });
  await change(spare, 'activate');
  expect(await change(spare, 'retire')).toMatchObject({ fromSize: 0 });
});

/** Runs `then` after the first query of the checkpoints. */
const afterFirstRead = (tx: Transaction, then: () => Promise<void>): Transaction => {
  let isFirst = true;
  return new Proxy(tx, {
    apply: (target, self, given: [string | readonly string[]]) => {
      const query = Reflect.apply(target, self, given) as Promise<unknown>;
      if (!isFirst || !String(given[0]).includes('from svc.checkpoint')) return query;
      isFirst = false;
      return query.then(async (rows) => {
        await then();
        return rows;
      });
    },
  });
};

it('appendLogKeyChange > rejects the retirement of a key that signs a checkpoint during the retirement', async () => {
  const [current, next] = [
    testLog(db, 'test.example/rotated'),
    testLog(db, 'test.example/rotated'),
  ];
  await current.publish();
  for (const { vkey } of [current, next]) {
    await appendLogKeyChange(registry.admin, parseVkey(vkey), 'activate');
  }
  const lease = await db.as('svc_publisher', 1).reserve();
  await lease`select pg_advisory_lock(7566947, 1)`;
  const before = await treeSize(registry.engine);
  const retired = transaction(registry.admin, (tx) => {
    const read = afterFirstRead(tx, () => current.publish());
    return appendLogKeyChange(read, parseVkey(current.vkey), 'retire');
  });
  await expect(retired).rejects.toThrow('the running publisher signs with this key');
  expect(await treeSize(registry.engine)).toBe(before);
  lease.release();
});

const revocation = { artifactKind: 'proof' as const, reason: 'wrong', actor: 'auditor' };

it('appendRevocation > appends nothing for an unknown proof', async () => {
  const before = await treeSize(registry.engine);
  for (const proofId of ['0190f3c8a1b27d3e8f4a5b6c7d8e9f00', '0'.repeat(32), 'nonsense']) {
    const revoked = appendRevocation(registry.admin, {
      ...revocation,
      proofId,
      salt: '8'.repeat(64),
    });
    await expect(revoked).rejects.toThrow(AdministrationError);
  }
  expect(await treeSize(registry.engine)).toBe(before);
});

it('appendRevocation > appends nothing for an artifact that is absent or already revoked', async () => {
  const admitted = registry.item();
  const denied = agentItem(registry, admissionEnvelope({ action: 'DELETE_AUDIT_LOG' }));
  const [admittedId = '', deniedId = ''] = await registry.admitAll([admitted, denied]);
  const leafIndex = await registry.revoke(admittedId, 'certificate');
  const again = registry.revoke(admittedId, 'certificate');
  await expect(again).rejects.toThrow(`already revoked, by leaf ${leafIndex}`);
  const absent = registry.revoke(deniedId, 'certificate');
  await expect(absent).rejects.toThrow('has no certificate');
  expect(await treeSize(registry.engine)).toBe(leafIndex + 1);
  await registry.revoke(admittedId, 'trust');
  await registry.revoke(deniedId, 'proof');
});

it('storeTraces > deletes a limited number of old contexts, with the role of the engine', async () => {
  await db.sql`
    insert into svc.trace (proof_id, traceparent, created_at)
    select gen_random_uuid(), ${TRACEPARENT}, now() - interval '1 hour' - n * interval '1 second'
    from generate_series(1, 10_003) n`;
  const left = async (): Promise<number> => (await db.sql`select from svc.trace`).length;
  const store = () =>
    storeTraces(registry.engine, [{ proofId: registry.item().proofId, traceparent: TRACEPARENT }]);
  await store();
  expect(await left()).toBe(4);
  await store();
  expect(await left()).toBe(2);
});

const TRACEPARENT = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
