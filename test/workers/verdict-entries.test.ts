import { beforeEach, describe, expect, it, vi } from 'vitest';
import { toBase64 } from '#protocol/bytes';
import { entryBytes, parseEntry } from '#protocol/entries';
import { parseVkey } from '#protocol/note';
import { LISTED_LEAVES, type VerdictEntry } from '#protocol/schemas/log-entry';
import { rootFromTiles } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { KeyStates, isSignedVerdict, verdictMessage } from '#protocol/state/log-keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { setValidity } from '#sql/tenants/administration';
import { transaction, databaseTime } from '#sql/db/transaction';
import { appendLogKeyChange } from '#sql/lifecycle/log-keys';
import { appendEntries, lockHead } from '#sql/log/append';
import { keysInLog } from '#sql/log/keys';
import { tileCache, treeSize, appendVerdict } from '#sql/log/log';
import { expiryScanDoneAt } from '#sql/log/verdicts';
import { VerdictClock, type VerdictSigner, verifierHeartbeats } from '#workers/verify/context';
import { scanExpiries } from '#workers/verify/expiries';
import { scrub } from '#workers/verify/scrub';
import { appendVerdictEntry, type Pace } from '#workers/verify/verdict-entries';
import { runVerifier, VERIFIER_DEFAULTS } from '#workers/verify/verifier';
import { testLog } from '../fixtures/checkpoints.js';
import { beforeRow } from '../fixtures/database.js';
import { without } from '../fixtures/engine.js';
import { untilWaiting } from '../fixtures/hold-lock.js';
import { TENANT } from '../fixtures/registry.js';
import { eventually } from '../fixtures/stack.js';
import { FLIP, tampering } from '../fixtures/tampering.js';
import { verdictSigner } from '../fixtures/verdict-signer.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');
const { holdVerdictLock, leafOf, outcomeOf, tamper } = tampering({ db, registry });
const newSigner = () => verdictSigner(registry, 'example.org/log');
let signer: ReturnType<typeof newSigner>;
beforeEach(async () => {
  signer = newSigner();
  await signer.activate();
  Object.assign(registry.verify, { signer });
});

const append = (by: VerdictSigner = signer, pace?: Pace) =>
  appendVerdictEntry(registry.verify, by, true, pace);
const verifyAndAppend = async (by?: VerdictSigner) => {
  await registry.verifyAll();
  return append(by);
};
async function entries(): Promise<(VerdictEntry & { at: number })[]> {
  const rows = await db.sql<{ at: number; body: Buffer }[]>`
    select leaf_index as at, body from svc.log_entry where kind = 5 order by leaf_index`;
  return rows.map(({ at, body }) => ({ ...(parseEntry(body) as VerdictEntry), at }));
}
const noValidity = { proof: null, certificate: null, passport: null, trust: null };

describe('appendVerdictEntry', () => {
  it('fails and names the database’s clock when the last expiry scan is in the future', async () => {
    await registry.verifyAll();
    await db.sql`update svc.upkeep set done_at = now() + interval '1 hour'`;
    await expect(append()).rejects.toThrow('correct the clock');
    expect(await entries()).toEqual([]);
  });

  it('fails when the database clock jumps ahead, unless the clock of the host confirms the jump', async () => {
    await verifyAndAppend();
    // By the clocks of the host, the database's clock is two minutes ahead of the last verdict.
    const monotonic = vi.spyOn(performance, 'now').mockReturnValue(performance.now() - 120_000);
    const host = vi.spyOn(Date, 'now').mockReturnValue(Date.now() - 120_000);
    try {
      await expect(append()).rejects.toThrow('restart the verifier if the database clock is right');
      const restarted = { ...registry.verify, clock: new VerdictClock() };
      expect(await appendVerdictEntry(restarted, signer, true)).toBe('none');
      await expect(append()).rejects.toThrow('the database clock jumped ahead');
      host.mockRestore();
      expect(await append()).toBe('none');
    } finally {
      monotonic.mockRestore();
      host.mockRestore();
    }
  });

  it('uses the scan that it read at its start, not a later scan of another verifier', async () => {
    await registry.verifyAll();
    const lock = await holdVerdictLock();
    const appending = append();
    await untilWaiting(db.sql);
    await db.sql`update svc.upkeep set done_at = now() + interval '1 hour'`;
    await lock.release();
    expect(await appending).toBe('appended');
  });

  it('covers the verified leaves, and lists the leaves that fail or pass again', async () => {
    const [id = ''] = await registry.admitAll([registry.item(), registry.item()]);
    await tamper(FLIP.signature, [id]);
    expect(await verifyAndAppend()).toBe('appended');
    const [first] = await entries();
    const { at, ...entry } = first!;
    expect(entry).toMatchObject({ previous: null, to: at, restored: [] });
    expect(entry.failed).toEqual([await leafOf(id)]);
    expect(entry.root).toBe(toBase64(await rootFromTiles(nativeSha256, at, tileCache(db.sql))));
    expect(entry.expired_through).toBe(formatTime((await expiryScanDoneAt(db.sql))!));
    const { crypto } = registry.verify;
    const keys = new KeyStates({ ...crypto, origins: [] }, (await keysInLog(db.sql))!);
    expect(isSignedVerdict(crypto, signer.origin, entry, keys, at)).toBe(true);
    expect(isSignedVerdict(crypto, 'other/log', entry, keys, at)).toBe(false);

    expect(await verifyAndAppend()).toBe('none'); // its own leaf only
    await tamper(FLIP.signature, [id]);
    await scrub(registry.verify, 100);
    expect(await append(signer, { published: 60_000, unpublished: 60_000 })).toBe('early');
    expect(await append()).toBe('appended');
    expect((await entries()).at(-1)).toMatchObject({
      previous: at,
      to: at + 1,
      failed: [],
      restored: [await leafOf(id)],
    });
    await registry.admitAll([registry.item()]);
    expect(await verifyAndAppend()).toBe('appended');
  });

  it('continues from the last entry that counts, however many entries with a wrong signature follow', async () => {
    await verifyAndAppend();
    const [counted] = await entries();
    const [row] = await db.sql<[{ body: Buffer }]>`
      select body from svc.log_entry where leaf_index = ${counted!.at}`;
    const text = row.body
      .toString()
      .replace(/"sig":"(.)/, (_, c) => `"sig":"${c === 'A' ? 'B' : 'A'}`);
    const forged = { kind: 'verdict' as const, at: 0, body: Buffer.from(text) };
    await transaction(db.sql, async (tx) => {
      const size = await lockHead(tx);
      await appendEntries(tx, size, Array<typeof forged>(12).fill(forged));
    });
    expect(await verifyAndAppend()).toBe('appended');
    const last = (await entries()).at(-1)!;
    expect(last.previous).toBe(counted!.at);
    expect(last.failed).toHaveLength(12);
  });

  it('waits longer for the next entry while no snapshot entry follows the last verdict entry', async () => {
    await verifyAndAppend();
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const pace = { published: 0, unpublished: 60_000 };
    expect(await append(signer, pace)).toBe('early');
    await transaction(db.sql, async (tx) => {
      const snapshot = { kind: 'snapshot' as const, at: 0, body: Buffer.from('{}') };
      await appendEntries(tx, await lockHead(tx), [snapshot]);
    });
    expect(await append(signer, pace)).toBe('appended');
  });

  it('fails while a key entry of the log is unreadable', async () => {
    await registry.verifyAll();
    await tamper(`update svc.log_entry set body = '{}' where kind = 3 and leaf_index = 0`, []);
    await expect(append()).rejects.toThrow('a key entry of the log is unreadable');
    expect(await entries()).toEqual([]);
  });

  it('does not list a leaf as failed if only the compromise of its key voids the proof', async () => {
    await registry.admitAll([registry.item()]);
    await registry.changeKey('compromise', 0);
    await registry.verifyAll();
    expect(await db.sql`select from svc.verdict where outcome = 'fail'`).toHaveLength(1);
    await append();
    expect(await entries()).toMatchObject([{ failed: [] }]);
  });

  it('lists failures that exceed the limit of an entry in the next entry', async () => {
    await verifyAndAppend();
    await transaction(db.sql, async (tx) => {
      const size = await lockHead(tx); // 3
      const wrong = { kind: 'snapshot' as const, at: 0, body: Buffer.from('{}') };
      await appendEntries(
        tx,
        size,
        Array.from({ length: LISTED_LEAVES + 2 }, () => wrong),
      );
    });
    expect([await verifyAndAppend(), await append(), await verifyAndAppend()]).toEqual([
      'appended',
      'appended',
      'none',
    ]);
    const [, second, third] = await entries();
    const to = 3 + LISTED_LEAVES;
    expect(second).toMatchObject({ to, failed: { length: LISTED_LEAVES, 0: 3 } });
    expect(third).toMatchObject({ to: to + 2, failed: [to, to + 1] });
    const root = await rootFromTiles(nativeSha256, to, tileCache(db.sql));
    expect(second!.root).toBe(toBase64(root));
  });

  it('appends an entry for an expiry, and whenever half of a snapshot’s validity has passed', async () => {
    await setValidity(registry.admin, TENANT, { ...noValidity, trust: 3 });
    const [id = ''] = await registry.admitAll([registry.item()]);
    expect(await verifyAndAppend()).toBe('appended');
    await eventually(
      async () => {
        await scanExpiries(registry.verify, 10);
        const [row] = await db.sql`select from svc.verdict where expired <> '{}'`;
        return row ?? null;
      },
      10_000,
      'the expiry',
    );
    await scanExpiries(registry.verify, 10);
    await registry.verifyAll();
    expect([await append(), await verifyAndAppend()]).toEqual(['appended', 'none']);
    const [before, after] = await entries();
    const [row] = await db.sql<[{ at: Date }]>`select at from svc.log_entry where proof_id = ${id}`;
    const end = formatTime(row.at.getTime() + 3000);
    expect(before!.expired_through < end && end <= after!.expired_through).toBe(true);
    expect(await verifyAndAppend({ ...signer, snapshotTtl: 0 })).toBe('appended');
  });

  it('appends one entry when two verifiers run at once or a verifier is interrupted', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    const repair = await beforeRow(db, 'update on svc.log_head', `raise exception 'killed';`);
    await expect(append()).rejects.toThrow('killed');
    await repair();
    const results = await Promise.all([append(), append()]);
    expect(results.sort()).toEqual(['appended', 'none']);
    expect(await entries()).toHaveLength(1);
  });

  it('rejects a key that is not active, and the name of another log', async () => {
    const other = newSigner();
    await expect(verifyAndAppend(other)).rejects.toThrow(`${other.keyId} is not active in the log`);
    await db.sql`
      insert into svc.checkpoint (tree_size, root, note) values (1, ${Buffer.alloc(32)}, ${'a/log\n'})`;
    await expect(append()).rejects.toThrow('LOG_ORIGIN is example.org/log');
    const ours = { ...signer, origin: 'a/log', snapshotTtl: 0 };
    await append(ours);
    await signer.retire();
    await expect(append()).rejects.toThrow('is not active');
    expect(await entries()).toHaveLength(1);
  });

  it('rejects a name without a log key before the first checkpoint', async () => {
    const key = parseVkey(testLog(db, 'a/log').vkey);
    await registry.verifyAll();
    await appendLogKeyChange(registry.admin, key, 'activate');
    await expect(append()).rejects.toThrow(
      /^LOG_ORIGIN is example.org\/log, but .* admin log-key activate/,
    );
    expect(await append({ ...signer, origin: 'a/log' })).toBe('appended');
    await db.sql`
      insert into svc.ended_log (origin, tree_size, reason) values ('a/log', 1, 'a test')`;
    expect(await append({ ...signer, origin: 'next/log' })).toBe('appended');
  });

  it('reports every leaf again for a log that continues a retired log', async () => {
    const [id = ''] = await registry.admitAll([registry.item()]);
    await tamper(FLIP.signature, [id]);
    await verifyAndAppend();
    await db.sql`
      insert into svc.ended_log (origin, tree_size, reason) values (${signer.origin}, 1, 'a test')`;
    await expect(append()).rejects.toThrow('is retired');
    Object.assign(signer, { origin: 'next/log' });
    expect(await verifyAndAppend()).toBe('appended');
    const [before, after] = await entries();
    const failed = [await leafOf(id)];
    expect([before!.failed, after!.failed]).toEqual([failed, failed]);
    expect(after).toMatchObject({ previous: null, to: after!.at });
  });

  it('reads no verdict entry of a retired log', async () => {
    await verifyAndAppend();
    await transaction(db.sql, async (tx) => {
      const [row] = await tx<[{ body: Buffer }]>`select body from svc.log_entry where kind = 5`;
      const entry = { kind: 'verdict' as const, at: 0, body: row.body };
      await appendEntries(tx, await lockHead(tx), [entry, entry]);
    });
    await registry.verifyAll();
    await db.sql`
      insert into svc.ended_log (origin, tree_size, reason)
      values (${signer.origin}, ${await treeSize(db.sql)}, 'a test')`;
    const { crypto } = registry.verify;
    const verify = vi.fn(crypto.verify);
    Object.assign(registry.verify, { crypto: { ...crypto, verify } });
    expect(await append({ ...signer, origin: 'next/log' })).toBe('appended');
    expect(verify).not.toHaveBeenCalled();
  });

  it('covers a limited number of new leaves with each entry', async () => {
    await registry.admitAll([registry.item(), registry.item(), registry.item()]);
    await registry.verifyAll();
    const next = () => appendVerdictEntry(registry.verify, signer, true, undefined, 2);
    const results = [await next(), await next(), await next(), await next()];
    expect(results).toEqual(['appended', 'appended', 'appended', 'none']);
    expect((await entries()).map(({ to }) => to)).toEqual([2, 4, 5]);
  });

  it('lowers `expired_through` only in the first entry after the key was retired', async () => {
    signer.snapshotTtl = 0;
    await verifyAndAppend();
    await db.sql`update svc.upkeep set done_at = done_at - interval '1 hour'`;
    await append();
    const next = Object.assign(newSigner(), { snapshotTtl: 0 });
    await next.activate();
    await append(next);
    await signer.retire();
    await append(next);
    const [first = '', ...others] = (await entries()).map((entry) => entry.expired_through);
    expect(others).toEqual([first, first, first]);
    const last = Object.assign(newSigner(), { snapshotTtl: 0 });
    await last.activate();
    await next.retire();
    await append(last);
    expect((await entries()).at(-1)!.expired_through < first).toBe(true);
  });

  it('appends entries with the next key after the database clock was set back', async () => {
    await verifyAndAppend();
    const [{ at: previous, ...last } = expect.fail()] = await entries();
    const at = (await databaseTime(db.sql)) + 3_600_000;
    const time = formatTime(at);
    const ahead = { ...without(last, 'sig'), previous, time, expired_through: time };
    const sig = toBase64(await signer.sign(verdictMessage(signer.origin, ahead)));
    const entry = { kind: 'verdict' as const, at, body: entryBytes({ ...ahead, sig }) };
    await transaction(db.sql, async (tx) => appendEntries(tx, await lockHead(tx), [entry]));
    await expect(append()).rejects.toThrow('correct the clock');
    const next = newSigner();
    await next.activate();
    await signer.retire();
    expect(await verifyAndAppend(next)).toBe('appended');
  });

  it('does not sign a root that differs from the tiles', async () => {
    await registry.admitAll([registry.item()]);
    await registry.verifyAll();
    await tamper(`update svc.tile set hashes = set_byte(hashes, 0, 1) where level = 0`, []);
    await expect(append()).rejects.toThrow('no verdict entry is appended');
  });
});

it.each<[string, () => Promise<unknown>]>([
  [
    'the last checkpoint has another name',
    () => db.sql`
      insert into svc.checkpoint (tree_size, root, note)
      values (1, ${Buffer.alloc(32)}, ${`${signer.origin}\n`})`,
  ],
  [
    'a log without a checkpoint has a log key of another name',
    () =>
      appendLogKeyChange(registry.admin, parseVkey(testLog(db, signer.origin).vkey), 'activate'),
  ],
  [
    'a log without a checkpoint is retired under the name',
    () => db.sql`
      insert into svc.ended_log (origin, tree_size, reason) values ('other/log', 1, 'a test')`,
  ],
])('verifier with a wrong LOG_ORIGIN > records no verdict if %s', async (_, name) => {
  await verifyAndAppend();
  await registry.verifyAll();
  await name();
  const verdicts = (): Promise<unknown> => db.sql`select from svc.verdict order by verdict_id`;
  const before = await verdicts();
  Object.assign(registry.verify, { signer: { ...signer, origin: 'other/log' } });
  await registry.admitAll([registry.item()]);
  await expect(scrub(registry.verify, 100)).rejects.toThrow('LOG_ORIGIN is other/log');
  await expect(registry.verifyAll()).rejects.toThrow('LOG_ORIGIN is other/log');
  expect(await verdicts()).toEqual(before);
});

it('verdict entry without a signature by the verifier key > fails, and is skipped by the next entry', async () => {
  await registry.admitAll([registry.item()]);
  await verifyAndAppend();
  const [{ at, ...entry } = expect.fail()] = await entries();
  const time = formatTime(await databaseTime(db.sql));
  const forged = { ...entry, previous: at, to: at + 1, failed: [2], time };
  await transaction(registry.verify.sql, (tx) => appendVerdict(tx, forged, at));
  const [id = ''] = await registry.admitAll([registry.item()]);
  await verifyAndAppend();
  expect((await entries()).at(-1)).toMatchObject({ previous: at, failed: [at + 1], restored: [] });
  expect(await outcomeOf(id)).toBe('pass');
});

it('runVerifier > appends the first entry at once, and is not ready without an active key', async () => {
  await registry.admitAll([registry.item()]);
  const context = { ...registry.verify, heartbeats: verifierHeartbeats() };
  const stopping = new AbortController();
  const running = runVerifier(context, stopping.signal, VERIFIER_DEFAULTS);
  const until = (what: string, isSo: () => Promise<boolean>) =>
    eventually(async () => ((await isSo()) ? true : null), 10_000, what);
  await until('an entry', async () => (await entries()).length === 1);
  await until('its own leaf', async () => (await treeSize(db.sql)) === 4);
  expect(context.heartbeats.verdict.state).toBe('up');
  await signer.retire();
  await until('not ready', () => Promise.resolve(context.heartbeats.verdict.state === 'failing'));
  stopping.abort();
  await running;
  expect((await entries()).length).toBeLessThanOrEqual(2);
});
