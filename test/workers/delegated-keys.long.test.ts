import { setTimeout as sleep } from 'node:timers/promises';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { keyStatesOf } from '#api/engine/proofs/stored-proof';
import { toBase64Url, utf8 } from '#protocol/bytes';
import { entryBytes } from '#protocol/entries';
import { canonicalBytes } from '#protocol/json';
import { formatTime, parseTime } from '#protocol/time';
import { nativeSha256, type SigningKey } from '#runtime/crypto/node';
import { newBulkSigningKey } from '#runtime/crypto/sodium';
import { announcePending } from '#sql/admissions/outcomes';
import { transaction } from '#sql/db/transaction';
import { acceptIntake } from '#sql/admissions/intake';
import { appendEntries, lockHead } from '#sql/log/append';
import { keyEntries, keysInLog, type KeysOfLog, keyEntryReader } from '#sql/log/keys';
import { treeSize, appendDelegation } from '#sql/log/log';
import { type AdmitContext, SigningKeyInactiveError } from '#workers/admit/context';
import { processAdmissions } from '#workers/admit/process';
import { scrub } from '#workers/verify/scrub';
import { startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { accepted, stateOf } from '../fixtures/admissions.js';
import {
  changeRoot,
  delegatedKeys,
  delegationOf,
  idOf,
  keysUnder,
} from '../fixtures/delegation.js';
import { ORIGIN } from '../fixtures/synthetic-leaves.js';
import { freshSigner } from '../fixtures/registry.js';
import { tampering } from '../fixtures/tampering.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');
const { leafOf, outcomeOf } = tampering({ db, registry });
beforeEach(() => registry.reportAll());

const WAIT = { timeout: 60_000, interval: 50 };

const workerWith = (signer: SigningKey): AdmitContext => ({
  ...registry.admit,
  signer,
  keyId: idOf(signer),
  logOrigin: ORIGIN,
});

async function prove(worker: AdmitContext): Promise<string> {
  const id = await accepted(registry, registry.item());
  await processAdmissions(worker, [id]);
  return id;
}

/** Appends a proof like a worker that skips the check of its key. */
async function forge(worker: AdmitContext): Promise<string> {
  const reader = keyEntryReader(worker.sql, ORIGIN);
  const { begin } = reader;
  reader.begin = () => {
    const { from, add } = begin.call(reader);
    return { from, add: async (sql, rows) => withoutChecks(await add(sql, rows)) };
  };
  const withoutChecks = (keys: KeysOfLog) => {
    const at = () => ({ publicKey: null, state: 'active' as const });
    const states = Object.assign(Object.create(keys.states) as typeof keys.states, {
      at,
      toCount: () => [],
    });
    return { ...keys, states };
  };
  try {
    return await prove(worker);
  } finally {
    reader.begin = begin;
  }
}

async function verified(id: string): Promise<string | undefined> {
  await registry.verifyAll();
  return outcomeOf(id);
}

describe('delegated key', () => {
  let root: SigningKey;
  let key: SigningKey;
  const delegate = async (limits: { until_index: number; max_proofs: number }, by = root) => {
    const entry = { type: 'key' as const, ...(await delegationOf(registry, by, limits, key)) };
    entry.delegation.root_key_id = idOf(root);
    await transaction(registry.admin, async (tx) => {
      const size = await lockHead(tx);
      const body = entryBytes(entry);
      await appendEntries(tx, size, [{ kind: 'key', at: Date.now(), body }]);
    });
  };
  beforeEach(async () => {
    [root, key] = [freshSigner(), freshSigner()];
    await changeRoot(registry, root, 'activate');
  });

  it.each([
    ['another key signed the delegation', () => delegate(LIMITS, freshSigner())],
    [
      'its root was retired before the delegation',
      async () => {
        await changeRoot(registry, root, 'retire');
        await delegate(LIMITS);
      },
    ],
  ])('signs nothing if %s', async (_, activate) => {
    await activate();
    await expect(prove(workerWith(key))).rejects.toThrow(SigningKeyInactiveError);
    expect(await verified(await forge(workerWith(key)))).toBe('fail');
  });
  const LIMITS = { until_index: 1000, max_proofs: 1000 };

  it('is accepted by the engine after its log was retired', async () => {
    await delegate(LIMITS);
    const leaf = await leafOf(await prove(workerWith(key)));
    await db.sql`insert into svc.ended_log (origin, tree_size, reason) values (${ORIGIN}, 1, 'lost')`;
    const keys = await keysInLog(registry.engine, [idOf(key)]);
    const states = await keyStatesOf(registry.engine, keys ?? []);
    expect(states.at(idOf(key), leaf)?.state).toBe('active');
  });

  it.each([
    ['until_index', (size: number) => ({ until_index: size + 3, max_proofs: 9 })],
    ['max_proofs', (size: number) => ({ until_index: size + 100, max_proofs: 2 })],
  ])('signs nothing beyond %s', async (_, limits) => {
    await delegate(limits(await treeSize(db.sql)));
    const proofs = [await prove(workerWith(key)), await prove(workerWith(key))];
    await expect(prove(workerWith(key))).rejects.toThrow(
      /is retired at index \d+: this worker resumes when its root key has delegated/,
    );
    expect(await verified(await forge(workerWith(key)))).toBe('fail');
    for (const id of proofs) expect(await verified(id)).toBe('pass');
  });

  it('is void from the index at which the compromise of its root begins', async () => {
    await delegate(LIMITS);
    const [before, after] = [await prove(workerWith(key)), await prove(workerWith(key))];
    await registry.verifyAll();
    await changeRoot(registry, root, 'compromise', await leafOf(after));
    await expect(prove(workerWith(key))).rejects.toThrow(/is compromised/);
    expect(await verified(before)).toBe('pass');
    while ((await scrub(registry.verify, 1000)).urgent);
    expect(await outcomeOf(after)).toBe('fail');
  });
});

describe('worker with a root key', () => {
  const stops: (() => Promise<void>)[] = [];
  afterEach(async () => {
    for (const stop of stops.splice(0)) await stop();
  });
  const lines: { msg: string }[] = [];
  const log = pino(
    { level: 'error' },
    { write: (line: string) => void lines.push(JSON.parse(line) as { msg: string }) },
  );

  it('rotates its key under load without a failed group of admissions', async () => {
    const { root } = await delegatedKeys(registry);
    const queueConfig = { databaseUrl: db.urlFor('svc_worker'), redisUrl: null };
    for (let number = 0; number < 2; number++) {
      const sql = db.as('svc_worker', 8);
      const options = { sql, log, root, maxProofs: 800, everyMs: 20 };
      const delegated = keysUnder(registry, { ...options, newKey: newBulkSigningKey });
      await delegated.renew();
      const { policy, admissionsPaused } = registry.admit;
      const worker = startAdmitWorker(
        { sql, log, policy, admissionsPaused, delegated },
        queueConfig,
        WORKER_DEFAULTS,
      );
      stops.push(() => worker.close());
      await worker.ready;
      const readiness = () => worker.readiness();
      await expect.poll(readiness, WAIT).toMatchObject({
        ready: true,
        details: { signing_key: 'active', dependencies: { root_key: 'up' } },
      });
    }
    const pending = async () => (await db.sql`select from svc.intake_pending`).length;
    const ids: string[] = [];
    for (let sent = 0; sent < 40; sent++) {
      const items = Array.from({ length: 50 }, () => registry.item());
      await acceptIntake(registry.engine, items);
      const group = items.map(({ proofId }) => proofId);
      await announcePending(registry.engine, group, group, []);
      ids.push(...group);
      while ((await pending()) > 100) await sleep(5);
    }
    await expect.poll(pending, WAIT).toBe(0);
    const [last] = ids.slice(-1);
    expect(await stateOf(registry, last!)).toMatchObject({ state: 'proved' });
    const rows = await db.sql<{ keyId: string; proofs: number }[]>`
      select key_id as "keyId", count(*)::int as proofs from svc.log_entry where kind = 1 group by 1`;
    expect(rows.reduce((sum, { proofs }) => sum + proofs, 0)).toBe(ids.length);
    expect(rows.length).toBeGreaterThan(4);
    await registry.verifyAll();
    const failures = await db.sql`select from svc.verdict where outcome <> 'pass'`;
    expect([failures.length, lines]).toEqual([0, []]);
  });

  it('continues to sign with its last key while the root is down, and reports the outage', async () => {
    let isDown = false;
    const { publicKey, sign } = freshSigner();
    const root = {
      publicKey,
      sign: (message: Uint8Array) =>
        isDown ? Promise.reject(new Error('no answer')) : sign(message),
    };
    const { keys } = await delegatedKeys(registry, { root, maxProofs: 8, log });
    const first = keys.current!;
    isDown = true;
    for (let proofs = 0; proofs < 5; proofs++) await prove({ ...registry.admit, ...first });
    await keys.renew();
    expect([keys.root, keys.current]).toEqual(['down', first]);
    expect(lines.at(-1)?.msg).toContain('the root key did not delegate to a new key');
    await prove({ ...registry.admit, ...first });
    isDown = false;
    await keys.renew();
    expect(keys.root).toBe('up');
    expect(keys.current!.keyId).not.toBe(first.keyId);
  });

  it('signs nothing once its log is retired', async () => {
    const { keys } = await delegatedKeys(registry, { log });
    expect(keys.current).not.toBeNull();
    await db.sql`insert into svc.ended_log (origin, tree_size, reason) values (${ORIGIN}, 1, 'lost')`;
    await keys.renew();
    expect([keys.current, keys.root]).toEqual([null, 'down']);
    expect(lines.at(-1)).toMatchObject({
      msg: 'worker: this worker has no delegated key and signs nothing',
      err: {
        message: expect.stringContaining(`LOG_ORIGIN is ${ORIGIN}, which is retired`) as string,
      },
    });
  });

  it('gets no key from a root that is not active in the log', async () => {
    const keys = keysUnder(registry, { root: freshSigner() });
    await keys.renew();
    expect([keys.current, keys.root]).toEqual([null, 'down']);
  });
});

describe('svc.append_delegation', () => {
  const worker = () => db.as('svc_worker');

  it('accepts only a canonical delegation within the limits, of a new key by an active root', async () => {
    const root = freshSigner();
    await changeRoot(registry, root, 'activate');
    const leaf = await treeSize(db.sql);
    const limits = { until_index: leaf + 100, max_proofs: 100 };
    const entry = await delegationOf(registry, root, limits);
    type Entry = typeof entry;
    // Not appendDelegation, which rejects a malformed entry before the database does.
    const attempt = async (change: (entry: Entry) => Entry): Promise<number> => {
      const members = change(structuredClone(entry));
      const schema_version = 'svc.registry.entry/1.1';
      const body = canonicalBytes({ schema_version, type: 'key', ...members });
      const [row] = await worker()<[{ leaf: number }]>`
        select svc.append_delegation(${body})::int as leaf`;
      return row.leaf;
    };
    const withLimits =
      (given: Partial<typeof limits>) =>
      (one: Entry): Entry => ({ ...one, delegation: { ...one.delegation, ...given } });
    for (const [change, problem] of [
      [withLimits({ until_index: leaf + 102 }), /limits/],
      [withLimits({ until_index: leaf + 1 }), /limits/],
      [withLimits({ until_index: leaf + 9, max_proofs: 1_000_001 }), /limits/],
      [(one: Entry) => ({ ...one, key_id: idOf(root) }), /canonical/],
      [
        (one: Entry) => ({ ...one, delegation: { ...one.delegation, sig: 'A'.repeat(88) } }),
        /key or signature is malformed/,
      ],
      [
        (one: Entry) => ({
          ...one,
          public_key: 'AA',
          key_id: toBase64Url(nativeSha256(utf8('{"crv":"Ed25519","kty":"OKP","x":"AA"}'))),
        }),
        /key or signature is malformed/,
      ],
      [(one: Entry) => ({ ...one, time: '2026-01-01T00:00:00.000Z' }), /60 seconds/],
      [
        (one: Entry) => ({
          ...one,
          delegation: { ...one.delegation, root_key_id: registry.admit.keyId },
        }),
        /root key is not active/,
      ],
    ] as const) {
      await expect(attempt(change)).rejects.toThrow(problem);
    }
    expect(await attempt((one) => one)).toBe(leaf);
    await expect(attempt(withLimits({ until_index: leaf + 50 }))).rejects.toThrow(/already/);
    await expect(appendDelegation(registry.engine, entry)).rejects.toThrow(/permission denied/);
    await changeRoot(registry, root, 'retire');
    const late = await delegationOf(registry, root, limits);
    await expect(appendDelegation(worker(), late)).rejects.toThrow(/root key is not active/);
  });

  it('accepts at most 60 delegations per minute', async () => {
    const root = freshSigner();
    await changeRoot(registry, root, 'activate');
    const limits = { until_index: 1000, max_proofs: 1000 };
    const append = async () => {
      const entry = await delegationOf(registry, root, limits);
      // A compromised worker states almost the earliest time that the database accepts.
      const time = formatTime(parseTime(entry.time) - 59_000);
      return appendDelegation(worker(), { ...entry, time });
    };
    for (let number = 0; number < 60; number++) await append();
    // Now the database's clock is more than a minute after the stated times.
    await sleep(1_200);
    await expect(append()).rejects.toThrow('60 delegations of the last minute');
    expect((await keyEntries(db.sql)).length).toBe(63);
  });
});
