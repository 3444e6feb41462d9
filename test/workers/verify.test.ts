import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { statusEntryBytes } from '#protocol/entries';
import { leafHash } from '#protocol/merkle';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendRevocation } from '#sql/lifecycle/entries';
import { appendLocked, entryRows, lockHead, treeSize, type NewEntry } from '#sql/log/log';
import { transaction } from '#sql/db/transaction';
import { verifiedPrefix, verdictsForLeaves } from '#sql/log/verdicts';
import { checkLeaf } from '#workers/verify/check-leaf';
import { LogDamagedError } from '#workers/verify/context';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scrub } from '#workers/verify/scrub';
import { untilWaiting } from '../fixtures/append-lock.js';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { byId, FLIP, tampering } from '../fixtures/tampering.js';

let db: TestDatabase;
let registry: TestRegistry;

beforeEach(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
});
afterEach(() => db.drop());

const { leafOf, outcomeOf, tamper, holdVerdictLock } = tampering(() => ({ db, registry }));

it('checkLeaf > fails a revocation whose row has another kind', () => {
  const proof_id = registry.item().proofId;
  const entry = Buffer.from(
    statusEntryBytes({
      proof_id,
      artifact_kind: 'proof',
      reason_hash: '0'.repeat(64),
      time: '2026-01-01T00:00:00.000Z',
    }),
  );
  const found = (['status', 'key'] as const).map((kind) => {
    const leaf = { leafIndex: 0, entry, kind, filedUnder: proof_id, proof: null };
    const inclusion = { leafHashInTree: leafHash(nativeSha256, entry) };
    return checkLeaf(registry.verify.crypto, leaf, [], 1, inclusion).checks;
  });
  expect(found.map((checks) => checks.map(({ result }) => result))).toEqual([
    ['pass', 'pass'],
    ['fail', 'pass'],
  ]);
});

describe('verified prefix', () => {
  it('covers appended leaves, with the root of the tree', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await registry.verifyAll();
    const prefix = await verifiedPrefix(registry.verify.sql);
    expect(prefix?.treeSize).toBe(await treeSize(registry.engine));
    for (const id of [ids[0]!, ids[150]!, ids[299]!]) expect(await outcomeOf(id)).toBe('pass');
  });

  it('grows in any number of steps to the same root', async () => {
    await registry.admitAll(Array.from({ length: 5 }, () => registry.item()));
    while ((await extendVerifiedPrefix(registry.verify, 2)) > 0);
    await registry.admitAll(Array.from({ length: 600 }, () => registry.item()));
    while ((await extendVerifiedPrefix(registry.verify, 257)) > 0);
    const inSteps = await verifiedPrefix(registry.verify.sql);
    await tamper('delete from svc.verdict', []);
    while ((await extendVerifiedPrefix(registry.verify, 100_000)) > 0);
    const atOnce = await verifiedPrefix(registry.verify.sql);
    expect(inSteps?.root.equals(atOnce!.root)).toBe(true);
    expect(inSteps?.subtrees.equals(atOnce!.subtrees)).toBe(true);
  });

  it('is extended by one of several verifiers at a time', async () => {
    await registry.admitAll(Array.from({ length: 50 }, () => registry.item()));
    const covered = await Promise.all(
      [1, 2, 3].map(() => extendVerifiedPrefix(registry.verify, 1000)),
    );
    expect(covered.filter((count) => count > 0)).toHaveLength(1);
  });

  it('is not extended while another writes verdicts, and then only once', async () => {
    await registry.admitAll([registry.item()]);
    const lock = await holdVerdictLock();
    const moving = Promise.all([1, 2].map(() => extendVerifiedPrefix(registry.verify, 1000)));
    await untilWaiting(db.sql, 2);
    await lock.release();
    expect((await moving).sort()).toEqual([0, 2]);
    expect(await db.sql`select from svc.verdict`).toHaveLength(1);
  });

  it('is extended atomically with the verdicts on single leaves', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(FLIP.signature, [id]);
    await db.sql.unsafe(`
      create function public.failing() returns trigger language plpgsql as $$ begin
        if not new.frontier then raise exception 'not now'; end if;
        return new; end $$;
      create trigger failing before insert on svc.verdict for each row execute function public.failing()`);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow('not now');
    expect(await verifiedPrefix(registry.verify.sql)).toBeNull();
    await db.sql`drop trigger failing on svc.verdict`;
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('is not extended when the database fails', async () => {
    await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    // Reading a tile above the leaves fails, for the verifier only.
    await db.sql.unsafe(`
      alter table svc.tile enable row level security;
      create policy failing on svc.tile to svc_verifier
        using (case when level > 0 then level / (level - level) = 1 else true end)`);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(/division by zero/);
    expect(await verifiedPrefix(registry.verify.sql)).toBeNull();
    await db.sql.unsafe('alter table svc.tile disable row level security');
    await registry.verifyAll();
    expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(0);
  });

  it('is not extended in a database that is older than its verdicts', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper('update svc.log_head set tree_size = tree_size - 1', []);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(LogDamagedError);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(
      /older than its verdicts/,
    );
  });

  it('is not extended from a root that does not match its record', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await registry.admitAll([registry.item()]);
    await tamper('update svc.verdict set root = set_byte(root, 0, get_byte(root, 0) # 1)', []);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(/recorded root/);
  });

  it('is not extended over a missing leaf', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(`delete from svc.log_entry where ${byId}`, [id]);
    await expect(registry.verifyAll()).rejects.toThrow(LogDamagedError);
  });
});

describe.each(Object.entries(FLIP))('one flipped bit of a stored %s', (_, statement) => {
  it('fails a bit that was flipped before the verification', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await tamper(statement, [ids[1]!]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
  });

  it('fails a bit that was flipped after the verification', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('pass');
    await tamper(statement, [ids[1]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[0]!)).toBe('pass');
    expect(await outcomeOf(ids[1]!)).toBe('fail');
    expect(await outcomeOf(ids[2]!)).toBe('pass');
    // The same flip repairs the byte.
    await tamper(statement.replace("+ interval '1 second'", "- interval '1 second'"), [ids[1]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeOf(ids[1]!)).toBe('pass');
  });
});

describe('leaf', () => {
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

  it.each(['aep', 'signature'])('fails when its %s is missing', async (column) => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await tamper(`update svc.proof set ${column} = null where ${byId}`, [ids[1]!]);
    await registry.verifyAll();
    expect(await outcomeOf(ids[1]!)).toBe('fail');
    await tamper(`delete from svc.proof where ${byId}`, [ids[0]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(1)).toBe('fail');
  });

  it.each(['infinity', '-infinity', '10000-01-01', '0044-03-15 BC'])(
    'fails without its neighbours when its time is %s',
    async (time) => {
      const ids = await registry.admitAll([registry.item(), registry.item(), registry.item()]);
      await registry.verifyAll();
      await tamper(`update svc.log_entry set at = '${time}' where ${byId}`, [ids[1]!]);
      await scrub(registry.verify, 1000);
      const outcomes = await Promise.all(ids.map(outcomeOf));
      expect(outcomes).toEqual(['pass', 'fail', 'pass']);
    },
  );

  it('fails when it is malformed, although the tree contains it', async () => {
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

  it('fails when it is missing', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    const leaf = await leafOf(ids[0]!);
    await tamper(`delete from svc.log_entry where ${byId}`, [ids[0]!]);
    await scrub(registry.verify, 1000);
    expect(await outcomeAt(leaf)).toBe('fail');
    expect(await outcomeOf(ids[1]!)).toBe('pass');
  });

  it('fails when it was exchanged together with its tile', async () => {
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

describe('revocation', () => {
  it('fails when it is damaged', async () => {
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
