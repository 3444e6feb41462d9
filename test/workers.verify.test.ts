import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toBase64Url } from '#protocol/bytes';
import type { ArtifactKind } from '#protocol/status';
import { nativeSha256 } from '#runtime/crypto';
import { setValidity } from '#sql/administration';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle';
import { acceptIntake } from '#sql/intake';
import { treeSize } from '#sql/log';
import { readProof } from '#sql/proofs';
import { frontier, verdictsForLeaves } from '#sql/verdicts';
import { processAdmissions } from '#workers/admit/process';
import { LogDamagedError } from '#workers/verify/context';
import { expire } from '#workers/verify/expire';
import { advanceFrontier } from '#workers/verify/frontier';
import { scrub } from '#workers/verify/scrub';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterEach(() => db.drop());

async function leafOf(id: string): Promise<number> {
  const proof = await readProof(registry.engine, registry.tenantNo, id);
  if (proof === null) throw new Error(`no proof ${id}`);
  return proof.leafIndex;
}

async function outcomeOf(id: string): Promise<string | undefined> {
  const leaf = await leafOf(id);
  return (await verdictsForLeaves(registry.verify.sql, [leaf])).get(leaf)?.outcome;
}

/** Changes stored bytes as a superuser with every trigger off. */
async function tamper(statement: string, parameters: Buffer[] | string[]): Promise<void> {
  await db.sql.begin(async (tx) => {
    await tx`set local session_replication_role = replica`;
    const rows = await tx.unsafe(statement, parameters);
    expect(rows.count).toBeGreaterThan(0);
  });
}

const byId = `replace(proof_id::text, '-', '') = $1`;
const FLIP = {
  aep: `update svc.proof set aep = set_byte(aep, 40, get_byte(aep, 40) # 1) where ${byId}`,
  signature: `update svc.proof set signature = set_byte(signature, 5, get_byte(signature, 5) # 1) where ${byId}`,
  request: `update svc.intake set request = set_byte(request, 9, get_byte(request, 9) # 1) where ${byId}`,
  aep_hash: `update svc.log_entry set aep_hash = set_byte(aep_hash, 0, get_byte(aep_hash, 0) # 1) where ${byId}`,
  effect: `update svc.proof set effect = case effect when 'ADMIT' then 'DENY' else 'ADMIT' end where ${byId}`,
  environment: `update svc.proof set environment = case environment when 'live' then 'sandbox' else 'live' end where ${byId}`,
  key_id: `update svc.proof set key_id = reverse(key_id) where ${byId}`,
  time: `update svc.log_entry set at = at + interval '1 second' where ${byId}`,
};

describe('the verified prefix', () => {
  it('covers what was appended, with the root of the tree', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await registry.verifyAll();
    const prefix = await frontier(registry.verify.sql);
    expect(prefix?.treeSize).toBe(await treeSize(registry.engine));
    for (const id of [ids[0]!, ids[150]!, ids[299]!]) expect(await outcomeOf(id)).toBe('pass');
  });

  it('grows in any number of steps to the same root', async () => {
    await registry.admitAll(Array.from({ length: 5 }, () => registry.item()));
    while ((await advanceFrontier(registry.verify, 2)) > 0);
    await registry.admitAll(Array.from({ length: 600 }, () => registry.item()));
    while ((await advanceFrontier(registry.verify, 257)) > 0);
    const inSteps = await frontier(registry.verify.sql);
    await tamper('delete from svc.verdict', []);
    while ((await advanceFrontier(registry.verify, 100_000)) > 0);
    const atOnce = await frontier(registry.verify.sql);
    expect(inSteps?.root.equals(atOnce!.root)).toBe(true);
    expect(inSteps?.subtrees.equals(atOnce!.subtrees)).toBe(true);
  });

  it('is moved by one of several verifiers at a time', async () => {
    await registry.admitAll(Array.from({ length: 50 }, () => registry.item()));
    const covered = await Promise.all([1, 2, 3].map(() => advanceFrontier(registry.verify, 1000)));
    expect(covered.filter((count) => count > 0)).toHaveLength(1);
  });

  it('does not go past a hole in the log', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(`delete from svc.log_entry where ${byId}`, [id]);
    await expect(registry.verifyAll()).rejects.toThrow(LogDamagedError);
  });
});

describe.each(Object.entries(FLIP))('one flipped bit of a stored %s', (_, statement) => {
  it('is never asserted when it was flipped before the verification', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await tamper(statement, [ids[1]!]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('stops being asserted when it was flipped afterwards', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('pass');
    await tamper(statement, [ids[1]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
    expect(await outcomeOf(ids[1]!)).toBe('fail');
    expect(await outcomeOf(ids[2]!)).toBe('pass');
    // Mended from a backup, it asserts again: the same flip undoes itself.
    await tamper(statement.replace("+ interval '1 second'", "- interval '1 second'"), [ids[1]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[1]!)).toBe('pass');
  });
});

describe('one flipped bit of a tile', () => {
  const flip = (level: number, at: number) =>
    tamper(
      `update svc.tile set hashes = set_byte(hashes, ${at}, get_byte(hashes, ${at}) # 1)
       where level = ${level} and tile_index = 0`,
      [],
    );

  it('of a leaf: that leaf is not asserted', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await flip(0, (await leafOf(ids[1]!)) * 32);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('above the leaves: nothing under it is asserted', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await flip(1, 3);
    await registry.verifyAll();
    expect(await outcomeOf(ids[0]!)).toBe('fail');
    expect(await outcomeOf(ids[299]!)).toBe('fail');
  });

  it('stops the assertion when it was flipped afterwards', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    await flip(0, (await leafOf(ids[1]!)) * 32);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });
});

describe('keys', () => {
  const change = async (what: 'retire' | 'compromise', fromIndex?: number) => {
    const { keyId, signer } = registry.admit;
    await appendKeyChange(registry.admin, nativeSha256, {
      keyId,
      publicKey: toBase64Url(signer.publicKey),
      change: what,
      ...(fromIndex === undefined ? {} : { fromIndex }),
    });
  };

  it('retired, still verify what they signed before', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await change('retire');
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
  });

  it('compromised from a position on, count only below it', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    await change('compromise', await leafOf(ids[1]!));
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('compromised, are looked for at once wherever the scrubber is, and however far back', async () => {
    const ids = await registry.admitAll(Array.from({ length: 30 }, () => registry.item()));
    await registry.verifyAll();
    await scrub(registry.verify, 28);
    await change('compromise', await leafOf(ids[3]!));
    await registry.verifyAll();
    const steps: boolean[] = [];
    do steps.push((await scrub(registry.verify, 10)).urgent);
    while (steps.at(-1));
    expect(steps).toEqual([true, true, false]);
    expect(await outcomeOf(ids[2]!)).toBe('pass');
    for (const id of ids.slice(3)) expect(await outcomeOf(id)).toBe('fail');
  });

  it('whose entry was tampered with verify nothing', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(
      `update svc.log_entry set body = set_byte(body, 20, get_byte(body, 20) # 1) where kind = 3`,
      [],
    );
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('fail');
  });
});

describe('validity', () => {
  it('over is a verdict, and stays one when the leaf is verified again', async () => {
    const validity: Record<ArtifactKind, number | null> = {
      proof: null,
      certificate: 0,
      passport: 3600,
      trust: 0,
    };
    await setValidity(registry.admin, TENANT, validity);
    const [id = ''] = await registry.admitAll([registry.item()]);
    expect(await expire(registry.verify, 100)).toBe(0);
    await registry.verifyAll();
    expect(await expire(registry.verify, 100)).toBe(1);
    expect(await expire(registry.verify, 100)).toBe(0);
    const leaf = await leafOf(id);
    const said = async () => (await verdictsForLeaves(registry.verify.sql, [leaf])).get(leaf);
    expect(await said()).toMatchObject({ outcome: 'pass', expired: ['certificate', 'trust'] });
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    expect(await said()).toMatchObject({ outcome: 'pass', expired: ['certificate', 'trust'] });
  });
});

describe('a revocation', () => {
  it('is a leaf like any other, whose damage is noticed', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const index = await appendRevocation(registry.admin, nativeSha256, {
      proofId: id,
      artifactKind: 'certificate',
      reason: 'an audit found it wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    });
    await registry.verifyAll();
    const outcome = async () => {
      await scrub(registry.verify, 1000);
      return (await verdictsForLeaves(registry.verify.sql, [index])).get(index)?.outcome;
    };
    expect(await outcome()).toBe('pass');
    const refile = `update svc.log_entry set proof_id = $1::uuid where kind = 2`;
    await tamper(refile, ['0'.repeat(32)]);
    expect(await outcome()).toBe('fail');
    await tamper(refile, [id]);
    expect(await outcome()).toBe('pass');
    await tamper(`update svc.log_entry set body = '{}' where kind = 2`, []);
    expect(await outcome()).toBe('fail');
  });
});

describe('processing twice', () => {
  it('gives the same bytes', async () => {
    const item = registry.item();
    await acceptIntake(registry.engine, [item]);
    await processAdmissions(registry.admit, [item.proofId]);
    const first = await readProof(registry.engine, registry.tenantNo, item.proofId);
    // As if the commit had never happened: the append is taken back and done once more.
    await db.sql.begin(async (tx) => {
      await tx`set local session_replication_role = replica`;
      await tx`delete from svc.proof`;
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
});
