import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { toBase64Url, utf8 } from '#protocol/bytes';
import { statusEntryBytes } from '#protocol/entries';
import { CompactRange, leafHash } from '#protocol/merkle';
import type { ArtifactKind } from '#protocol/status';
import { extendTiles } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto';
import { setValidity } from '#sql/administration';
import { appendKeyChange, appendRevocation } from '#sql/lifecycle';
import { acceptIntake } from '#sql/intake';
import { appendLocked, entryRows, lockHead, treeSize, type NewEntry } from '#sql/log';
import { unpackAep } from '#sql/packed-aep';
import { readProof } from '#sql/proofs';
import { transaction } from '#sql/transaction';
import {
  frontier,
  insertVerdicts,
  verdictsForLeaves,
  verdictsForRange,
  type NewVerdict,
} from '#sql/verdicts';
import { processAdmissions } from '#workers/admit/process';
import { LogDamagedError } from '#workers/verify/context';
import { expire } from '#workers/verify/expire';
import { advanceFrontier } from '#workers/verify/frontier';
import { NO_KEYS, withLeaf } from '#workers/verify/keys';
import { VERDICT_LOCK } from '#workers/verify/lock';
import { scrub } from '#workers/verify/scrub';
import { runVerifier } from '#workers/verify/verifier';
import { untilWaiting } from './helpers/append-lock.js';
import { freshDatabase, type TestDatabase } from './helpers/database.js';
import { openRegistry, TENANT, type TestRegistry } from './helpers/registry.js';
import { eventually } from './helpers/stack.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterEach(() => db.drop());

async function leafOf(id: string): Promise<number> {
  const [proof] = await db.sql<{ leaf_index: number }[]>`
    select leaf_index from svc.proof where proof_id = ${id}::uuid`;
  if (proof === undefined) throw new Error(`no proof ${id}`);
  return proof.leaf_index;
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

/** Holds the lock of whoever writes verdicts. */
async function holdVerdictLock(): Promise<{ release(): Promise<void> }> {
  const connection = await db.sql.reserve();
  await connection`select pg_advisory_lock(${VERDICT_LOCK})`;
  return {
    release: async () => {
      await connection`select pg_advisory_unlock(${VERDICT_LOCK})`;
      connection.release();
    },
  };
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
  tenant: `update svc.proof set tenant_no = tenant_no # 1024 where ${byId}`,
  'tenant of the intake': `update svc.intake set tenant_no = tenant_no # 1024 where ${byId}`,
  lane: `update svc.proof set lane = 3 - lane where ${byId}`,
  action: `update svc.proof set action = reverse(action) where ${byId}`,
  intent_id: `update svc.proof set intent_id = reverse(intent_id) where ${byId}`,
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

  it('is moved by nobody while another writes verdicts, and then not twice', async () => {
    await registry.admitAll([registry.item()]);
    const lock = await holdVerdictLock();
    const moving = Promise.all([1, 2].map(() => advanceFrontier(registry.verify, 1000)));
    await untilWaiting(db.sql, 2);
    await lock.release();
    expect((await moving).sort()).toEqual([0, 2]);
    expect(await db.sql`select from svc.verdict`).toHaveLength(1);
  });

  it('moves together with the verdicts on single leaves or not at all', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(FLIP.signature, [id]);
    await db.sql.unsafe(`
      create function public.failing() returns trigger language plpgsql as $$ begin
        if not new.frontier then raise exception 'not now'; end if;
        return new; end $$;
      create trigger failing before insert on svc.verdict for each row execute function public.failing()`);
    await expect(advanceFrontier(registry.verify, 1000)).rejects.toThrow('not now');
    expect(await frontier(registry.verify.sql)).toBeNull();
    await db.sql`drop trigger failing on svc.verdict`;
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('stays where it is when the database fails: that is no finding', async () => {
    await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    // Reading a tile above the leaves fails, for the verifier alone.
    await db.sql.unsafe(`
      alter table svc.tile enable row level security;
      create policy failing on svc.tile to svc_verifier
        using (case when level > 0 then level / (level - level) = 1 else true end)`);
    await expect(advanceFrontier(registry.verify, 1000)).rejects.toThrow(/division by zero/);
    expect(await frontier(registry.verify.sql)).toBeNull();
    await db.sql.unsafe('alter table svc.tile disable row level security');
    await registry.verifyAll();
    expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(0);
  });

  it('does not go on in a database that is older than its verdicts', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper('update svc.log_head set tree_size = tree_size - 1', []);
    await expect(advanceFrontier(registry.verify, 1000)).rejects.toThrow(LogDamagedError);
    await expect(advanceFrontier(registry.verify, 1000)).rejects.toThrow(/older than its own/);
  });

  it('does not go on from a root that does not follow from its own record', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await registry.admitAll([registry.item()]);
    await tamper('update svc.verdict set root = set_byte(root, 0, get_byte(root, 0) # 1)', []);
    await expect(advanceFrontier(registry.verify, 1000)).rejects.toThrow(/recorded root/);
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

describe('a leaf', () => {
  /** Appends an entry as a worker could that was taken over, and returns its index. */
  function append(entry: NewEntry): Promise<number> {
    return transaction(db.sql, async (tx) => {
      const size = await lockHead(tx);
      await appendLocked(tx, nativeSha256, size, [entry]);
      return size;
    });
  }
  const outcomeAt = async (index: number) =>
    (await verdictsForLeaves(registry.verify.sql, [index])).get(index)?.outcome;

  it.each(['aep', 'signature'])('whose %s is gone is not asserted', async (column) => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await tamper(`update svc.proof set ${column} = null where ${byId}`, [ids[1]!]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
    await tamper(`delete from svc.proof where ${byId}`, [ids[0]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(1)).toBe('fail');
  });

  it.each(['infinity', '-infinity', '10000-01-01', '0044-03-15 BC'])(
    'whose time is %s fails by itself',
    async (time) => {
      const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
      await registry.verifyAll();
      await tamper(`update svc.log_entry set at = '${time}' where ${byId}`, [ids[1]!]);
      await scrub(registry.verify, 1000);
      const outcomes = await Promise.all(ids.map(outcomeOf));
      expect(outcomes).toEqual(['pass', 'fail', 'pass']);
    },
  );

  it('that is no entry of the log is not asserted, although it is in the tree', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const at = Date.now();
    const [proofEntry] = await entryRows(registry.engine, await leafOf(id), 2);
    const [keyEntry] = await entryRows(registry.engine, 0, 1);
    const indexes = [
      await append({ kind: 'status', proofId: id, at, body: utf8('{}') }),
      await append({ kind: 'key', at, body: proofEntry!.bytes }),
      await append({ kind: 'status', proofId: id, at, body: proofEntry!.bytes }),
      await append({ kind: 'status', proofId: id, at, body: keyEntry!.bytes }),
    ];
    await registry.verifyAll();
    for (const index of indexes) expect(await outcomeAt(index)).toBe('fail');
    expect(await outcomeOf(id)).toBe('pass');
  });

  it('that is gone stops being asserted', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    const leaf = await leafOf(ids[0]!);
    await tamper(`delete from svc.log_entry where ${byId}`, [ids[0]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(leaf)).toBe('fail');
    expect(await outcomeOf(ids[1]!)).toBe('pass');
  });

  it('that was exchanged, in its tile too, is noticed by the root', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    const revocation = {
      proofId: ids[0]!,
      reason: 'wrong',
      actor: 'auditor',
      salt: '5'.repeat(64),
    };
    const index = await appendRevocation(registry.admin, nativeSha256, {
      ...revocation,
      artifactKind: 'proof',
    });
    await registry.verifyAll();
    const [row] = await db.sql<{ body: string }[]>`
      select convert_from(body, 'UTF8') as body from svc.log_entry where kind = 2`;
    const body = Buffer.from(
      row!.body.replace('"artifact_kind":"proof"', '"artifact_kind":"trust"'),
    );
    expect(body.toString()).not.toBe(row!.body);
    await tamper('update svc.log_entry set body = $1 where kind = 2', [body]);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(index)).toBe('fail');
    await tamper(
      `update svc.tile set hashes = overlay(hashes placing $1 from ${index * 32 + 1}) where level = 0`,
      [Buffer.from(leafHash(nativeSha256, body))],
    );
    await tamper('delete from svc.verdict where not frontier', []);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(index)).toBe('fail');
  });
});

describe('one flipped bit of a tile', () => {
  const flip = (level: number, at: number, tileIndex = 0) =>
    tamper(
      `update svc.tile set hashes = set_byte(hashes, ${at}, get_byte(hashes, ${at}) # 1)
       where level = ${level} and tile_index = ${tileIndex}`,
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

  it('of a leaf in a full tile, away from every key: that leaf alone is not asserted', async () => {
    const ids = await registry.admitAll(Array.from({ length: 520 }, () => registry.item()));
    const at = await leafOf(ids[299]!);
    await flip(0, (at - 256) * 32, 1);
    await registry.verifyAll();
    expect(await outcomeOf(ids[299]!)).toBe('fail');
    for (const id of [ids[298]!, ids[300]!, ids[519]!]) expect(await outcomeOf(id)).toBe('pass');
  });

  it('of a leaf that was verified before: nothing new is asserted beside it', async () => {
    const before = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    const [id = ''] = await registry.admitAll([registry.item()]);
    await flip(0, (await leafOf(before[1]!)) * 32);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('of a full tile above the leaves, which no root is read from: nothing new is asserted', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const body = statusEntryBytes({
      proof_id: id,
      artifact_kind: 'trust',
      reason_hash: '0'.repeat(64),
      time: formatTime(0),
    });
    const [key, proof] = await entryRows(registry.engine, 0, 2);
    const keysDigest = withLeaf(NO_KEYS, 0, key!.bytes).digest;
    const [verified, size] = [65_530, 65_540];
    const leaf = leafHash(nativeSha256, body);
    const hashes = [key, proof].map((entry) => leafHash(nativeSha256, entry!.bytes));
    while (hashes.length < size) hashes.push(leaf);
    await tamper('delete from svc.tile', []);
    for (const { level, index, hashes: bytes } of extendTiles(nativeSha256, 0, hashes, [])) {
      await db.sql`insert into svc.tile values (${level}, ${index}, ${Buffer.from(bytes)})`;
    }
    await db.sql`
      insert into svc.log_entry (leaf_index, kind, proof_id, at, body)
      select at, 2, ${id}::uuid, now(), ${Buffer.from(body)}
      from generate_series(${verified}::bigint, ${size - 1}) as at`;
    await tamper(`update svc.log_head set tree_size = ${size}`, []);
    const range = new CompactRange(nativeSha256);
    for (const hash of hashes.slice(0, verified)) range.append(hash);
    await insertVerdicts(registry.verify.sql, [
      {
        prefix: { subtrees: Buffer.concat(range.hashes), keysDigest },
        firstIndex: 0,
        lastIndex: verified - 1,
        treeSize: verified,
        root: range.root(),
        outcome: 'pass',
        expired: [],
        checks: [],
      },
    ]);
    await flip(1, 3 * 32);
    await registry.verifyAll();
    const said = await verdictsForLeaves(registry.verify.sql, [size - 1]);
    expect(said.get(size - 1)?.outcome).toBe('fail');
  });

  it('gone above the leaves: nothing new is asserted, and it is not the end', async () => {
    await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await registry.verifyAll();
    await tamper('delete from svc.tile where level = 1', []);
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
    expect((await frontier(registry.verify.sql))?.treeSize).toBe(await treeSize(registry.engine));
  });

  it('gone from under what was verified: it stops being asserted', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper('delete from svc.tile', []);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
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
  const change = async (what: 'activate' | 'retire' | 'compromise', fromIndex?: number) => {
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

  it('are known to the scrubber as far as the prefix goes, whatever comes after it', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await change('compromise', 0);
    expect(await scrub(registry.verify, 1000)).toEqual({ changed: 0, urgent: false });
    expect(await outcomeOf(ids[0]!)).toBe('pass');
  });

  it.each([
    ['is gone', `delete from svc.log_entry where leaf_index = 2`],
    [
      'goes for something else',
      `update svc.log_entry set kind = 2, proof_id = gen_random_uuid()
       where leaf_index = 2`,
    ],
    [
      'begins later',
      `update svc.log_entry set body = convert_to(
         replace(convert_from(body, 'UTF8'), '"from_index":0', '"from_index":9'), 'UTF8')
       where leaf_index = 2`,
    ],
  ])('whose compromise %s in the database are not good again', async (_, statement) => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await change('compromise', 0);
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    await change('retire');
    await tamper(statement, []);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
    // Nor when the prefix goes on over it.
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('whose whole past is gone are not good again by being activated anew', async () => {
    const [before = ''] = await registry.admitAll([registry.item()]);
    await change('compromise', 0);
    await registry.verifyAll();
    await tamper(
      'update svc.log_entry set kind = 2, proof_id = gen_random_uuid() where kind = 3',
      [],
    );
    await change('activate');
    const [after = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
    await scrub(registry.verify, 1000);
    for (const id of [before, after]) expect(await outcomeOf(id)).toBe('fail');
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

describe('the scrubber', () => {
  it('goes round and round, and says nothing where nothing has changed', async () => {
    const ids = await registry.admitAll(Array.from({ length: 299 }, () => registry.item()));
    await registry.verifyAll();
    for (let step = 0; step < 3; step += 1) {
      expect(await scrub(registry.verify, 150)).toEqual({ changed: 0, urgent: false });
    }
    const [first, last] = [ids[0]!, ids[298]!];
    for (const id of [first, last]) await tamper(FLIP.signature, [id]);
    expect((await scrub(registry.verify, 150)).changed).toBe(1);
    expect([await outcomeOf(first), await outcomeOf(last)]).toEqual(['pass', 'fail']);
    expect((await scrub(registry.verify, 150)).changed).toBe(1);
    expect([await outcomeOf(first), await outcomeOf(last)]).toEqual(['fail', 'fail']);
    expect(await db.sql`select from svc.verdict where not frontier`).toHaveLength(2);
  });

  it.each([
    ['the scrubber', () => scrub(registry.verify, 1000)],
    ['what expires', () => expire(registry.verify, 1000)],
  ])('%s waits while another writes verdicts', async (_, work) => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const lock = await holdVerdictLock();
    const order: string[] = [];
    const working = work().then(() => order.push('worked'));
    await untilWaiting(db.sql);
    order.push('released');
    await lock.release();
    await working;
    expect(order).toEqual(['released', 'worked']);
  });
});

describe('the verdict in force', () => {
  const verdict = (
    range: { first: number; last: number; treeSize: number },
    outcome: 'pass' | 'fail',
    subtrees: Buffer | null = null,
  ): NewVerdict => ({
    prefix: subtrees && { subtrees, keysDigest: Buffer.alloc(32) },
    firstIndex: range.first,
    lastIndex: range.last,
    treeSize: range.treeSize,
    root: Buffer.alloc(32),
    outcome,
    expired: [],
    checks: [],
  });
  const inForce = async () => {
    const { sql } = registry.verify;
    const leaves = [0, 1, 2, 3, 4, 5];
    const said = await verdictsForLeaves(sql, leaves);
    expect(await verdictsForRange(sql, 0, 6)).toEqual(said);
    for (const leaf of leaves) {
      const one = said.get(leaf);
      const alone = one === undefined ? [] : [[leaf, one]];
      expect([...(await verdictsForRange(sql, leaf, leaf + 1))]).toEqual(alone);
    }
    return leaves.map((leaf) => said.get(leaf)?.outcome ?? null);
  };
  const say = (...verdicts: NewVerdict[]) => insertVerdicts(registry.verify.sql, verdicts);
  const leaf = (index: number, treeSize: number, outcome: 'pass' | 'fail') =>
    verdict({ first: index, last: index, treeSize }, outcome);

  it('is the one of the largest tree, and of those the last', async () => {
    await say(
      verdict({ first: 0, last: 1, treeSize: 2 }, 'pass', Buffer.alloc(32)),
      verdict({ first: 2, last: 4, treeSize: 5 }, 'pass', Buffer.alloc(64)),
    );
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'pass', 'pass', null]);
    await say(leaf(0, 5, 'fail'), leaf(3, 5, 'fail'));
    expect(await inForce()).toEqual(['fail', 'pass', 'pass', 'fail', 'pass', null]);
    // Whoever saw a smaller tree comes too late, however late.
    await say(leaf(0, 4, 'pass'));
    expect(await inForce()).toEqual(['fail', 'pass', 'pass', 'fail', 'pass', null]);
    await say(leaf(0, 5, 'pass'), leaf(3, 6, 'pass'), leaf(4, 5, 'fail'));
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'pass', 'fail', null]);
    await say(leaf(3, 6, 'fail'));
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'fail', 'fail', null]);
  });

  it('has no gap to hide in: no place of the prefix is said twice', async () => {
    await say(verdict({ first: 0, last: 1, treeSize: 2 }, 'pass', Buffer.alloc(32)));
    const again = say(verdict({ first: 0, last: 1, treeSize: 2 }, 'fail', Buffer.alloc(32)));
    await expect(again).rejects.toThrow(/verdict_frontier/);
    await expect(say(verdict({ first: 0, last: 1, treeSize: 2 }, 'pass'))).rejects.toThrow(/check/);
  });
});

describe('validity', () => {
  it('over is a verdict, and stays one when the leaf is verified again', async () => {
    const validity: Record<ArtifactKind, number | null> = {
      proof: null,
      certificate: 3600,
      passport: 7200,
      trust: 3600,
    };
    await setValidity(registry.admin, TENANT, validity);
    const [id = ''] = await registry.admitAll([registry.item()]);
    expect(await expire(registry.verify, 100)).toBe(0);
    await registry.verifyAll();
    await tamper(`update svc.expiry set expires_at = now() where artifact_kind <> 'passport'`, []);
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

describe('validities', () => {
  const noEnd = { proof: null, certificate: null, passport: null, trust: null };
  const said = async (id: string) => {
    const leaf = await leafOf(id);
    return (await verdictsForLeaves(registry.verify.sql, [leaf])).get(leaf);
  };
  const end = (kind: ArtifactKind) =>
    tamper(
      `update svc.expiry set expires_at = now() - interval '1 second' where artifact_kind = '${kind}'`,
      [],
    );

  it('that end one after the other add up', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, passport: 3600, trust: 3600 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    expect(await expire(registry.verify, 100)).toBe(0);
    expect((await said(id))?.expired).toEqual([]);
    await end('trust');
    expect(await expire(registry.verify, 100)).toBe(1);
    await end('passport');
    expect(await expire(registry.verify, 100)).toBe(1);
    expect((await said(id))?.expired).toEqual(['passport', 'trust']);
  });

  it('that are over do not make a leaf good that does not verify', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    await end('trust');
    expect(await expire(registry.verify, 100)).toBe(1);
    expect(await said(id)).toMatchObject({ outcome: 'fail', expired: ['trust'] });
  });

  it('of leaves that are not verified yet wait for that, and the others go in portions', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    ids.push(...(await registry.admitAll([registry.item()])));
    await end('trust');
    expect(await expire(registry.verify, 1)).toBe(1);
    expect(await expire(registry.verify, 1)).toBe(1);
    expect(await expire(registry.verify, 1)).toBe(0);
    await registry.verifyAll();
    await end('trust');
    expect(await expire(registry.verify, 1)).toBe(1);
    for (const id of ids) expect((await said(id))?.expired).toEqual(['trust']);
  });

  it('are not taken without a verdict on them', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await end('trust');
    await db.sql.unsafe(`
      create function public.failing() returns trigger language plpgsql as $$ begin
        raise exception 'not now'; end $$;
      create trigger failing before insert on svc.verdict execute function public.failing()`);
    await expect(expire(registry.verify, 100)).rejects.toThrow('not now');
    await db.sql`drop trigger failing on svc.verdict`;
    expect(await expire(registry.verify, 100)).toBe(1);
    expect((await said(id))?.expired).toEqual(['trust']);
  });

  it('that are over by the time of the first look are never said to go on', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 0, passport: 0, proof: 3600 });
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await tamper(FLIP.signature, [ids[1]!]);
    await advanceFrontier(registry.verify, 1000);
    const over = { outcome: 'pass', expired: ['passport', 'trust'], own: true };
    expect(await said(ids[0]!)).toMatchObject(over);
    expect(await said(ids[1]!)).toMatchObject({ outcome: 'fail', expired: [] });
    const due = await db.sql`select artifact_kind from svc.expiry`;
    expect(due).toEqual([{ artifact_kind: 'proof' }]);
    expect(await expire(registry.verify, 100)).toBe(0);
  });

  it('of a leaf that was mended end in their time, however rarely the scrubber comes by', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3600 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(FLIP.signature, [id]);
    await registry.verifyAll();
    expect(await said(id)).toMatchObject({ outcome: 'fail' });
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 1000);
    expect(await said(id)).toMatchObject({ outcome: 'pass', expired: [] });
    await end('trust');
    expect(await expire(registry.verify, 100)).toBe(1);
    expect(await said(id)).toMatchObject({ outcome: 'pass', expired: ['trust'] });
  });

  it('are not taken from an AEP that does not verify', async () => {
    await setValidity(registry.admin, TENANT, { ...noEnd, trust: 3_600_000_000 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const [row] = await db.sql<{ aep: Buffer }[]>`select aep from svc.proof`;
    const ended = unpackAep(row!.aep)
      .toString()
      .replace(/"trust":"[0-9]{4}/, '"trust":"2020');
    const put = `update svc.proof set aep = decode($1, 'hex')`;
    await tamper(put, [Buffer.from(ended).toString('hex')]);
    await scrub(registry.verify, 1000);
    expect(await said(id)).toMatchObject({ outcome: 'fail', expired: [] });
    await tamper(put, [row!.aep.toString('hex')]);
    await scrub(registry.verify, 1000);
    expect(await said(id)).toMatchObject({ outcome: 'pass', expired: [] });
  });
});

describe('the running verifier', () => {
  const options = { batch: 10, mostBatch: 40, idleMs: 5, upkeepMs: 5, scrubMs: 5, scrubBatch: 10 };
  async function whileItRuns(
    work: () => Promise<void>,
    overrides: Partial<typeof options> = {},
  ): Promise<void> {
    const stopping = new AbortController();
    const running = runVerifier(registry.verify, stopping.signal, { ...options, ...overrides });
    try {
      await work();
    } finally {
      stopping.abort();
      await running;
    }
  }
  const becomes = (id: string, outcome: string) =>
    eventually(
      async () => ((await outcomeOf(id)) === outcome ? true : null),
      10_000,
      `that it is ${outcome}`,
    );

  it('verifies what is new, and again what is old, and sees what is over', async () => {
    await setValidity(registry.admin, TENANT, {
      proof: null,
      certificate: null,
      passport: null,
      trust: 0,
    });
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await whileItRuns(async () => {
      await becomes(ids[0]!, 'pass');
      await tamper(FLIP.signature, [ids[0]!]);
      await becomes(ids[0]!, 'fail');
      await eventually(
        async () => {
          const leaf = await leafOf(ids[1]!);
          const verdict = (await verdictsForLeaves(registry.verify.sql, [leaf])).get(leaf);
          return verdict?.expired.length === 1 ? true : null;
        },
        10_000,
        'the end of a validity',
      );
    });
  });

  it('takes more at once while the log is ahead, and less again when it is not', async () => {
    await registry.verifyAll();
    const before = await treeSize(registry.engine);
    const ids = await registry.admitAll(Array.from({ length: 115 }, () => registry.item()));
    await whileItRuns(async () => {
      await becomes(ids.at(-1)!, 'pass');
      const more = await registry.admitAll(Array.from({ length: 12 }, () => registry.item()));
      await becomes(more.at(-1)!, 'pass');
    });
    const ranges = await db.sql<{ covered: number }[]>`
      select (last_index - first_index + 1)::integer as covered from svc.verdict
      where frontier and first_index >= ${before} order by first_index`;
    expect(ranges.map(({ covered }) => covered)).toEqual([10, 20, 40, 40, 5, 10, 2]);
  });

  it('goes on after a round that failed', async () => {
    const ids = await registry.admitAll([registry.item()]);
    await db.sql`alter table svc.verdict rename to hidden`;
    await whileItRuns(async () => {
      await new Promise((resolve) => setTimeout(resolve, 100));
      await db.sql`alter table svc.hidden rename to verdict`;
      await becomes(ids[0]!, 'pass');
    });
  });

  it('does not let a compromise wait for the scrubber to come round', async () => {
    const ids = await registry.admitAll(Array.from({ length: 60 }, () => registry.item()));
    await registry.verifyAll();
    await scrub(registry.verify, 1000);
    const { keyId, signer } = registry.admit;
    await whileItRuns(
      async () => {
        await becomes(ids[0]!, 'pass');
        await new Promise((resolve) => setTimeout(resolve, 100));
        await appendKeyChange(registry.admin, nativeSha256, {
          keyId,
          publicKey: toBase64Url(signer.publicKey),
          change: 'compromise',
          fromIndex: 0,
        });
        await becomes(ids[59]!, 'fail');
      },
      { scrubMs: 1500, scrubBatch: 1 },
    );
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
