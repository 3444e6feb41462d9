import { describe, expect, it, vi } from 'vitest';
import { utf8 } from '#protocol/bytes';
import { entryBytes } from '#protocol/entries';
import { leafHash } from '#protocol/merkle';
import { KeyStates } from '#protocol/state/log-keys';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { appendEntries, lockHead, type NewEntry } from '#sql/log/append';
import { entryRows, treeSize } from '#sql/log/log';
import { transaction } from '#sql/db/transaction';
import { verifiedPrefix } from '#sql/log/verdicts';
import { checkLeaf } from '#workers/verify/check-leaf';
import { LogDamagedError } from '#workers/verify/context';
import { extendVerifiedPrefix } from '#workers/verify/verified-prefix';
import { scrub } from '#workers/verify/scrub';
import { untilWaiting } from '../fixtures/hold-lock.js';
import { beforeRow } from '../fixtures/database.js';
import { byId, FLIP, tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

const FLIPS = Object.entries(FLIP);
const { leafOf, outcomeOf, tamper, verdictAt, holdVerdictLock } = tampering({ db, registry });

it('checkLeaf > fails a revocation whose row is stored under a different kind', () => {
  const proof_id = registry.item().proofId;
  const entry = Buffer.from(
    entryBytes({
      type: 'status',
      status: 'REVOKED',
      proof_id,
      artifact_kind: 'proof',
      reason_hash: '0'.repeat(64),
      time: '2026-01-01T00:00:00.000Z',
    }),
  );
  const noKeys = { entries: [], states: new KeyStates({ ...nativeCrypto, origins: [] }, []) };
  const found = (['status', 'key'] as const).map((kind) => {
    const leaf = { leafIndex: 0, entry, kind, filedUnder: proof_id, proof: null };
    const inTree = leafHash(nativeSha256, entry);
    return checkLeaf(registry.verify.crypto, leaf, noKeys, inTree).checks;
  });
  expect(found.map((checks) => checks.map(({ result }) => result))).toEqual([
    ['pass', 'pass'],
    ['fail', 'pass'],
  ]);
});

describe('failover between the reads of a verifier and its verdicts', () => {
  /** Runs `pass`, and before its verdicts `work`, after which the connections that have read leaves are lost. */
  async function failOver(pass: () => Promise<unknown>, work: () => Promise<void>): Promise<void> {
    const { clock, crypto } = registry.verify;
    const { verify } = crypto;
    let readAt: number | undefined;
    const verifying = vi.spyOn(crypto, 'verify').mockImplementation((...given) => {
      readAt ??= Date.now();
      return verify(...given);
    });
    const lock = clock.lock.bind(clock);
    vi.spyOn(clock, 'lock').mockImplementationOnce(async (tx) => {
      await work();
      const ended = await db.sql`
        select pg_terminate_backend(pid) from pg_stat_activity
        where usename = 'svc_verifier' and datname = current_database()
          and (xact_start is null or xact_start < ${new Date(readAt!)})`;
      expect(ended.length).toBeGreaterThan(0);
      return lock(tx);
    });
    await expect(pass()).rejects.toThrow();
    verifying.mockRestore();
    await registry.verifyAll();
    expect(await scrub(registry.verify, 1000)).toMatchObject({ changed: 0 });
  }

  it('does not extend the verified prefix over leaves that took the place of lost leaves', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const size = await treeSize(db.sql);
    await registry.admitAll([registry.item()]);
    let id = '';
    await failOver(
      () => extendVerifiedPrefix(registry.verify, 1000),
      async () => {
        await tamper('delete from svc.log_entry where leaf_index >= $1', [String(size)]);
        await tamper(`update svc.tile set hashes = substring(hashes for 32 * ${size})`, []);
        await tamper('update svc.log_head set tree_size = $1', [String(size)]);
        [id = ''] = await registry.admitAll([registry.item()]);
      },
    );
    expect(await outcomeOf(id)).toBe('pass');
  });

  it('gives a leaf no verdict of a scrub pass over the other database', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(FLIP.signature, [id]);
    await failOver(
      () => scrub(registry.verify, 1000),
      () => tamper(FLIP.signature, [id]),
    );
    expect(await outcomeOf(id)).toBe('pass');
  });
});

describe('verified prefix', () => {
  it('is extended once when two verifiers wait for a concurrent writer of verdicts', async () => {
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
    const remove = await beforeRow(
      db,
      'insert on svc.verdict',
      `if not new.frontier then raise exception 'not now'; end if;`,
    );
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow('not now');
    expect(await verifiedPrefix(registry.verify.sql)).toBeNull();
    await remove();
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('is not extended when the log is shorter than the recorded verdicts', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper('update svc.log_head set tree_size = tree_size - 1', []);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(LogDamagedError);
    await expect(extendVerifiedPrefix(registry.verify, 1000)).rejects.toThrow(
      /older than its verdicts/,
    );
  });

  it('is not extended when the root before the extension differs from the recorded root', async () => {
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

describe('proof with one flipped bit in its stored rows', () => {
  const failsOnly = async (flips: typeof FLIPS, ids: string[]) => {
    const outcomes = await Promise.all(ids.map(outcomeOf));
    const named = outcomes.map((outcome, at) => [flips[at]?.[0] ?? 'none', outcome]);
    expect(named).toEqual([...flips.map(([name]) => [name, 'fail']), ['none', 'pass']]);
  };
  const admitOneMoreThan = (flips: typeof FLIPS) =>
    registry.admitAll(Array.from({ length: flips.length + 1 }, () => registry.item()));

  it('fails its first verification', async () => {
    // A changed entry contradicts the tree, which fails every new leaf.
    const inEntry = [
      'aep_hash',
      'effect',
      'environment',
      'key_id',
      'is_outcome',
      'validity',
      'time',
    ];
    const ofEntry = FLIPS.filter(([name]) => inEntry.includes(name));
    const others = FLIPS.filter((flip) => !ofEntry.includes(flip));
    const ids = await admitOneMoreThan(others);
    for (const [at, [, statement]] of others.entries()) await tamper(statement, [ids[at]!]);
    await registry.verifyAll();
    await failsOnly(others, ids);
    const changed = await registry.admitAll(ofEntry.map(() => registry.item()));
    for (const [at, [, statement]] of ofEntry.entries()) await tamper(statement, [changed[at]!]);
    await registry.verifyAll();
    expect(await Promise.all(changed.map(outcomeOf))).toEqual(ofEntry.map(() => 'fail'));
  });

  it('fails its next scrub, and passes after a repair', async () => {
    const ids = await admitOneMoreThan(FLIPS);
    await registry.verifyAll();
    for (const [at, [, statement]] of FLIPS.entries()) await tamper(statement, [ids[at]!]);
    await scrub(registry.verify, 1000);
    await failsOnly(FLIPS, ids);
    // Flipping the bit again repairs the byte.
    for (const [at, [, statement]] of FLIPS.entries()) {
      await tamper(statement.replace("+ interval '1 second'", "- interval '1 second'"), [ids[at]!]);
    }
    await scrub(registry.verify, 1000);
    expect(await Promise.all(ids.map(outcomeOf))).toEqual(ids.map(() => 'pass'));
  });
});

describe('leaf', () => {
  /** Appends an entry like a compromised worker, and returns its leaf index. */
  function append(entry: NewEntry): Promise<number> {
    return transaction(db.sql, async (tx) => {
      const size = await lockHead(tx);
      await appendEntries(tx, size, [entry]);
      return size;
    });
  }
  const outcomeAt = async (index: number) => (await verdictAt(index))?.outcome;

  it('fails when one of its rows is missing or out of range, and its neighbours pass', async () => {
    const damages = [
      ...['signature', 'reasons'].map(
        (payload) => `update svc.log_entry set ${payload} = null where ${byId}`,
      ),
      ...['request', 'request_hash', 'seed'].map(
        (payload) => `update svc.intake set ${payload} = null where ${byId}`,
      ),
      `delete from svc.intake where ${byId}`,
      `delete from svc.log_entry where ${byId}`,
      ...['infinity', '-infinity', '10000-01-01', '0044-03-15 BC'].map(
        (time) => `update svc.log_entry set at = '${time}' where ${byId}`,
      ),
    ];
    const ids = await registry.admitAll(damages.flatMap(() => [registry.item(), registry.item()]));
    await registry.verifyAll();
    const leaves = await Promise.all(ids.map(leafOf));
    for (const [at, damage] of damages.entries()) await tamper(damage, [ids[2 * at]!]);
    await scrub(registry.verify, 1000);
    const outcomes = await Promise.all(leaves.map(outcomeAt));
    expect(outcomes).toEqual(damages.flatMap(() => ['fail', 'pass']));
  });

  it('fails when it is malformed, although the tree contains it', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    const at = Date.now();
    const [proofEntry] = await entryRows(registry.verify.sql, await leafOf(id), 2);
    const [keyEntry] = await entryRows(registry.verify.sql, 0, 1);
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

  it('fails when it was replaced together with its tile', async () => {
    const ids = await registry.admitAll([registry.item(), registry.item()]);
    const index = await registry.revoke(ids[0]!);
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

it('revocation entry > fails when its column `revokes` or `body` is damaged', async () => {
  const [id = ''] = await registry.admitAll([registry.item()]);
  const index = await registry.revoke(id, 'certificate');
  await registry.verifyAll();
  const outcome = async () => {
    await scrub(registry.verify, 1000);
    return (await verdictAt(index))?.outcome;
  };
  expect(await outcome()).toBe('pass');
  const refile = `update svc.log_entry set revokes = $1::uuid where kind = 2`;
  await tamper(refile, ['0'.repeat(32)]);
  expect(await outcome()).toBe('fail');
  await tamper(refile, [id]);
  expect(await outcome()).toBe('pass');
  await tamper(`update svc.log_entry set body = '{}' where kind = 2`, []);
  expect(await outcome()).toBe('fail');
});

describe('flipped or missing tile hash', () => {
  const flip = (level: number, at: number, tileIndex = 0) =>
    tamper(
      `update svc.tile set hashes = set_byte(hashes, ${at}, get_byte(hashes, ${at}) # 1)
       where level = ${level} and tile_index = ${tileIndex}`,
      [],
    );

  it('fails every leaf when it is in a tile above the leaves', async () => {
    const ids = await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await flip(1, 3);
    await registry.verifyAll();
    expect(await outcomeOf(ids[0]!)).toBe('fail');
    expect(await outcomeOf(ids[299]!)).toBe('fail');
  });

  it('fails new leaves when it belongs to a verified leaf', async () => {
    const before = await registry.admitAll([registry.item(), registry.item()]);
    await registry.verifyAll();
    const [id = ''] = await registry.admitAll([registry.item()]);
    await flip(0, (await leafOf(before[1]!)) * 32);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
  });

  it('fails new leaves when the tile above these leaves is missing, and the verifier continues', async () => {
    await registry.admitAll(Array.from({ length: 300 }, () => registry.item()));
    await registry.verifyAll();
    await tamper('delete from svc.tile where level = 1', []);
    const [id = ''] = await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    expect(await outcomeOf(id)).toBe('fail');
    expect((await verifiedPrefix(registry.verify.sql))?.treeSize).toBe(
      await treeSize(registry.engine),
    );
  });
});
