import { randomBytes } from 'node:crypto';
import { beforeAll, describe, expect, it } from 'vitest';
import { canonicalBytes } from '#protocol/json';
import { nativeSha256 } from '#runtime/crypto/node';
import { type Pool, type Transaction, asTenants } from '#sql/db/transaction';
import {
  shareChangesSince,
  type ShareChange,
  createShareToken,
  revokeShareToken,
  type ShareTarget,
} from '#sql/lifecycle/share-tokens';
import { createPackage } from '#sql/lifecycle/packages';
import { useRegistry } from '../fixtures/use-registry.js';

/** The publisher reads numbered changes of tokens and packages in order; no other role can read them. */

const { db, registry } = useRegistry('file');
let publisher: Pool;
let proofs: string[];

beforeAll(async () => {
  proofs = await registry.admitAll(Array.from({ length: 4 }, () => registry.item()));
  publisher = db.as('svc_publisher');
});

async function share(
  target: ShareTarget,
  expiresAt: number | null = null,
  engine = registry.engine,
): Promise<string> {
  const tokenHash = randomBytes(32);
  const token = { tokenHash, keyNo: 1, target, expiresAt };
  const made = await createShareToken(engine, registry.tenantNo, token);
  expect(made.outcome).toBe('created');
  return tokenHash.toString('hex');
}

async function bundle(proofIds: string[]): Promise<string> {
  const made = await createPackage(registry.engine, registry.tenantNo, {
    packageId: `pkg_${registry.item().proofId}`,
    keyNo: 1,
    proofIds,
    membersHash: nativeSha256(canonicalBytes(proofIds)),
  });
  if (made.outcome === 'unfit') throw new Error('unfit');
  return made.package.packageId;
}

const proof = (): ShareTarget => ({ artifactKind: 'proof', proofId: proofs[0]! });
const insertToken = (tx: Transaction, hash = randomBytes(32)) => tx`
  insert into svc.share_token (token_hash, tenant_no, key_no, artifact_kind, proof_id)
  values (${hash}, ${registry.tenantNo}, 1, 'proof', ${proofs[0]!}::uuid)`;

const last = async (): Promise<number> => {
  const [row] = await db.sql<{ n: number }[]>`
    select coalesce(max(change_no), 0)::int as n from svc.grant_change`;
  return row!.n;
};

describe('shareChangesSince', () => {
  it('lists creations, revocations and expiries in commit order', async () => {
    const before = await last();
    const packageId = await bundle([proofs[1]!, proofs[0]!]);
    const one = await share(proof());
    const two = await share({ artifactKind: 'package', packageId }, Date.now() + 60_000);
    const revoke = () =>
      revokeShareToken(registry.engine, registry.tenantNo, {
        tokenHash: Buffer.from(one, 'hex'),
        keyNo: 1,
      });
    expect(await revoke()).toBe(true);
    await db.as('svc_verifier')`
      insert into svc.share_expiry (token_hash) values (${Buffer.from(two, 'hex')})`;
    // A repeated revocation and an existing package are not changes.
    await revoke();
    expect(await bundle([proofs[1]!, proofs[0]!])).toBe(packageId);
    const changes: ShareChange[] = [
      { changeNo: before + 1, packageId },
      { changeNo: before + 2, tokenHash: one },
      { changeNo: before + 3, tokenHash: two },
      { changeNo: before + 4, tokenHash: one },
      { changeNo: before + 5, tokenHash: two },
    ];
    expect(await shareChangesSince(publisher, before, 100)).toEqual(changes);
    expect(await shareChangesSince(publisher, before + 1, 2)).toEqual(changes.slice(1, 3));
  });

  it('returns change numbers without gaps under concurrent commits and rollbacks', async () => {
    const before = await last();
    const pools = Array.from({ length: 3 }, () => db.as('svc_engine'));
    let running = true;
    const seen: ShareChange[] = [];
    const look = async (): Promise<void> => {
      const from = before + seen.length;
      const found = await shareChangesSince(publisher, from, 1000);
      expect(found.map(({ changeNo }) => changeNo)).toEqual(found.map((_, i) => from + 1 + i));
      seen.push(...found);
    };
    const reading = (async () => {
      while (running) await look();
    })();
    const committed: string[] = [];
    const work = async (pool: Pool, seed: number): Promise<void> => {
      for (let i = 0; i < 12; i++) {
        const hashes = [randomBytes(32), randomBytes(32)];
        const giveUp = (i + seed) % 3 === 0;
        const done = asTenants(pool, [registry.tenantNo], async (tx) => {
          await insertToken(tx, hashes[0]);
          await tx`select pg_sleep(${((i * 7 + seed * 3) % 5) / 1000})`;
          if (i % 2 === 0) await tx`set constraints all immediate`;
          await insertToken(tx, hashes[1]);
          if (giveUp) throw new Error('given up');
        });
        if (giveUp) await expect(done).rejects.toThrow('given up');
        else {
          await done;
          committed.push(...hashes.map((hash) => hash.toString('hex')));
        }
      }
    };
    await Promise.all(pools.flatMap((pool, i) => [work(pool, i), work(pool, i + 3)]));
    running = false;
    await reading;
    await look();
    const found = seen.map((change) => ('tokenHash' in change ? change.tokenHash : ''));
    expect(found.sort()).toEqual(committed.sort());
    expect(committed).toHaveLength(6 * 12 * 2 * (2 / 3));
  });
});

it('numbers of share changes > grow by one, and each belongs to one token or package', async () => {
  for (const to of ['0', 'change_no', 'change_no + 2']) {
    const set = db.sql.unsafe(`update svc.grant_head set change_no = ${to}`);
    await expect(set).rejects.toThrow(/may only grow by one/);
  }
  await expect(db.sql`insert into svc.grant_head values (true, 0)`).rejects.toThrow(/unique/);
  await expect(db.sql`insert into svc.upkeep values (true, now())`).rejects.toThrow(/unique/);
  const hash = randomBytes(32);
  for (const both of [
    [hash, '019aa2c1-e07b-7c0f-8a3e-5d6b7c8d9e0f'] as const,
    [null, null] as const,
  ]) {
    const insert = db.sql`insert into svc.grant_change values (900000, ${both[0]}, ${both[1]})`;
    await expect(insert).rejects.toThrow(/check constraint/);
  }
});
