import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { hashHex } from '#protocol/hash';
import { utf8 } from '#protocol/bytes';
import { canonicalBytes } from '#protocol/canonical-json';
import { PACKAGE_PARTS, PROOF_PARTS, SHARE_PARTS } from '#protocol/snapshot/manifest';
import { TRUST_CHAIN } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { WriteStep } from '#publisher/publish';
import type { Publisher } from '#publisher/publisher';
import { PublisherStopped } from '#publisher/stopped';
import { nativeSha256 } from '#runtime/crypto';
import { PublishedGrants } from './helpers/published.js';
import { ORIGIN, START, TestSnapshot } from './helpers/snapshot.js';

/** Share tokens and packages on their way from the registry into the snapshot. */

let snapshot: TestSnapshot;
let published: PublishedGrants;
let publisher: Publisher;
let ids: string[];
beforeEach(async () => {
  snapshot = new TestSnapshot();
  published = new PublishedGrants(snapshot);
  ids = snapshot.registry.addProofs(6);
  snapshot.registry.verify();
  publisher = snapshot.publisher();
  await publisher.tick();
});
afterEach(() => snapshot.close());

const tick = async () => {
  snapshot.clock.at += 1000;
  return publisher.tick();
};
const bookmark = async (): Promise<number> => {
  const { index_parts: pins } = await published.manifest();
  const kinds = [SHARE_PARTS, PACKAGE_PARTS];
  return Math.max(
    0,
    ...pins.filter(({ kind }) => kinds.includes(kind)).map((pin) => pin.last_leaf),
  );
};
const segmentFiles = (): string[] =>
  readdirSync(join(snapshot.directory, 'lookup/segments')).map((name) =>
    join(snapshot.directory, 'lookup/segments', name),
  );

describe('a share token', () => {
  it('is published as what it shows, by its hash, and then as ended', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle([ids[0]!]);
    const tokens = {
      trust: registry.share('trust', ids[0]!),
      package: registry.share('package', packageId),
    };
    const token_hash = hashHex(nativeSha256, utf8(tokens.trust));
    expect(await published.share(tokens.trust)).toBeNull();
    expect(await tick()).toMatchObject({ outcome: 'published', grants: 3 });
    const version = { schema_version: 'svc.public_verification.share/1.0' };
    const live = { ...version, token_hash, artifact_kind: 'trust', proof_id: ids[0] };
    expect(await published.share(tokens.trust)).toEqual(live);
    expect(await published.share(tokens.package)).toMatchObject({
      artifact_kind: 'package',
      package_id: packageId,
    });

    registry.endShare(tokens.trust);
    expect(await tick()).toMatchObject({ grants: 1 });
    expect(await published.share(tokens.trust)).toEqual({
      ...version,
      token_hash,
      artifact_kind: null,
    });
    expect(await published.share(tokens.package)).toMatchObject({ artifact_kind: 'package' });
    // Nowhere in the snapshot is a token itself, nor the text that it begins with.
    for (const file of segmentFiles()) {
      const text = readFileSync(file, 'latin1');
      for (const token of Object.values(tokens)) expect(text).not.toContain(token.slice(0, 20));
      expect(text).not.toContain('share_');
    }
  });

  it('that ended before it was published is published as ended', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.endShare(token);
    expect(await tick()).toMatchObject({ grants: 2 });
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
    expect(await bookmark()).toBe(2);
  });

  it('stays ended when it ends twice, and costs nothing when nothing happens', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.endShare(token);
    await tick();
    snapshot.registry.endShare(token);
    await tick();
    expect(await bookmark()).toBe(3);
    const { files } = publisher.written();
    expect(await tick()).toMatchObject({ grants: 0 });
    expect(publisher.written().files).toBe(files + 1);
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
  });

  it('that the registry has no row of shows nothing', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    snapshot.registry.shares.clear();
    await tick();
    expect(await published.share(token)).toMatchObject({ artifact_kind: null });
  });
});

type Standing = 'asserts' | 'over' | 'failed' | 'revoked';

function become(proofId: string, standing: Standing): void {
  const { registry } = snapshot;
  if (standing === 'over') registry.judge(proofId, { expired: ['passport'] });
  if (standing === 'failed') registry.judge(proofId, { outcome: 'fail' });
  if (standing === 'revoked') registry.revoke(proofId, 'certificate');
  registry.verify();
}

const STATUS: Record<Standing, string> = {
  asserts: 'TRUST_ESTABLISHED',
  over: 'EXPIRED',
  failed: 'BACKEND_LOOKUP_REQUIRED',
  revoked: 'REVOKED',
};

/** What a package of such members says: written out, not computed. */
const TABLE: [Standing[], string][] = [
  [['asserts'], 'TRUST_ESTABLISHED'],
  [['asserts', 'asserts', 'asserts'], 'TRUST_ESTABLISHED'],
  [['asserts', 'over'], 'EXPIRED'],
  [['over', 'over'], 'EXPIRED'],
  [['asserts', 'failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['over', 'failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['failed'], 'BACKEND_LOOKUP_REQUIRED'],
  [['asserts', 'revoked'], 'REVOKED'],
  [['revoked', 'over'], 'REVOKED'],
  [['failed', 'revoked'], 'REVOKED'],
  [['over', 'failed', 'revoked', 'asserts'], 'REVOKED'],
];

describe('a package', () => {
  it('has the facade of a trust artifact, with its members in their order', async () => {
    const [second, first] = [ids[4]!, ids[1]!];
    const at = snapshot.clock.at + 500;
    snapshot.registry.judge(second, { verifiedAt: at, expired: ['trust'] });
    const packageId = snapshot.registry.bundle([second, first]);
    await tick();
    const member = (
      proof_id: string,
      verification_status: string,
      can_assert_validity: boolean,
    ) => ({
      proof_id,
      trust_id: `trust_${proof_id}`,
      verification_status,
      can_assert_validity,
    });
    expect(await published.package(packageId)).toEqual({
      schema_version: 'svc.public_verification.facade/1.0',
      artifact_kind: 'trust',
      identifier: packageId,
      lookup: { requested: packageId, matched_on: 'package_id' },
      verification: {
        verification_status: 'EXPIRED',
        can_assert_validity: false,
        frontend_recomputed: false,
        verified_at: formatTime(at),
      },
      artifact: {
        artifact_level: 'PACKAGE_BACKED_PUBLIC_PROJECTION',
        package_id: packageId,
        members: 2,
        effect: 'ADMIT',
        environment: 'sandbox',
      },
      trust_chain: TRUST_CHAIN.ADMIT,
      mutation_allowed: false,
      serves_authoritative_truth: false,
      references: {
        package_id: packageId,
        members: [member(second, 'EXPIRED', false), member(first, 'TRUST_ESTABLISHED', true)],
      },
      downloads: { checkpoint: '/log/checkpoint', keys: '/api/public/keys' },
      integrity: {
        members_hash: hashHex(nativeSha256, canonicalBytes([second, first])),
        log_origin: ORIGIN,
      },
    });
    // In a window as long as its newest member.
    const place = await published.place(PACKAGE_PARTS, packageId.slice(4));
    const newest = await published.place(PROOF_PARTS, second);
    expect(place?.place.proofNumber).toBe(newest?.place.proofNumber);
  });

  it.each(TABLE)(
    'of members that %j is %s, whether they were before or come to',
    async (of, is) => {
      const members = ids.slice(0, of.length);
      const before = snapshot.registry.bundle([...members].reverse());
      await tick();
      expect(await published.statusOf(before)).toBe('TRUST_ESTABLISHED');
      of.forEach((standing, i) => become(members[i]!, standing));
      const after = snapshot.registry.bundle(members);
      await tick();
      for (const packageId of [before, after]) {
        const facade = (await published.package(packageId))!;
        expect(facade.verification.verification_status).toBe(is);
        expect(facade.verification.can_assert_validity).toBe(is === 'TRUST_ESTABLISHED');
        // Of what did not verify no chain is claimed.
        expect(facade.trust_chain.available).toBe(!of.includes('failed'));
        const { members: told } = facade.references as {
          members: { proof_id: string; verification_status: string }[];
        };
        const said = new Map(told.map((one) => [one.proof_id, one.verification_status]));
        of.forEach((standing, i) => expect(said.get(members[i]!)).toBe(STATUS[standing]));
      }
    },
  );

  it('asserts again when a member does that had failed, and revoked it stays', async () => {
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    become(ids[0]!, 'failed');
    await tick();
    expect(await published.statusOf(packageId)).toBe('BACKEND_LOOKUP_REQUIRED');
    snapshot.registry.judge(ids[0]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    become(ids[1]!, 'revoked');
    await tick();
    become(ids[1]!, 'failed');
    await tick();
    snapshot.registry.judge(ids[1]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });

  it('is told of anew with each of many that a proof is in, and only those', async () => {
    const { registry } = snapshot;
    const having = [registry.bundle(ids.slice(0, 2)), registry.bundle([ids[2]!, ids[0]!])];
    const other = registry.bundle([ids[1]!, ids[2]!]);
    await tick();
    become(ids[0]!, 'over');
    const token = registry.share('package', other);
    await tick();
    for (const packageId of having) expect(await published.statusOf(packageId)).toBe('EXPIRED');
    expect(await published.statusOf(other)).toBe('TRUST_ESTABLISHED');
    // Being told of anew is no change: what comes next is taken up, once.
    expect(await published.share(token)).toMatchObject({ package_id: other });
    expect(await bookmark()).toBe(4);
    become(ids[0]!, 'revoked');
    expect(await tick()).toMatchObject({ grants: 0 });
    expect(await bookmark()).toBe(4);
  });

  it('says what the published records say, whatever the registry says of it since', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle(ids.slice(0, 2));
    await tick();
    registry.bundles[0]!.proofIds = [ids[3]!, ids[0]!];
    become(ids[0]!, 'over');
    await tick();
    const facade = await published.package(packageId);
    expect(facade?.references).toMatchObject({
      members: [{ proof_id: ids[0] }, { proof_id: ids[1] }],
    });
  });

  it('resolves to nothing when its members are not those that it was made of', async () => {
    const { registry } = snapshot;
    const forged = registry.bundle(ids.slice(0, 2));
    registry.bundles[0]!.proofIds = [ids[1]!];
    const lost = registry.bundle([ids[3]!]);
    registry.bundles.pop();
    const sound = registry.bundle([ids[4]!]);
    expect(await tick()).toMatchObject({ grants: 3 });
    expect(await published.package(forged)).toBeNull();
    expect(await published.package(lost)).toBeNull();
    expect(await published.statusOf(sound)).toBe('TRUST_ESTABLISHED');
    become(ids[0]!, 'over');
    become(ids[1]!, 'over');
    await tick();
    expect(await published.package(forged)).toBeNull();
  });

  it('of a denial asserts nothing', async () => {
    const denied = snapshot.registry.addProof({ effect: 'DENY' });
    snapshot.registry.verify();
    const packageId = snapshot.registry.bundle([ids[0]!, denied]);
    await tick();
    const facade = (await published.package(packageId))!;
    expect(facade.verification.verification_status).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(facade.trust_chain.available).toBe(false);
  });

  it('says live only when all of it is', async () => {
    const live = [0, 1].map(() => snapshot.registry.addProof({ environment: 'live' }));
    snapshot.registry.verify();
    const all = snapshot.registry.bundle(live);
    const some = snapshot.registry.bundle([live[0]!, ids[0]!]);
    await tick();
    expect((await published.package(all))?.artifact).toMatchObject({ environment: 'live' });
    expect((await published.package(some))?.artifact).toMatchObject({ environment: 'sandbox' });
  });

  it('waits for a member that is not published, and what changed later waits behind it', async () => {
    const { registry } = snapshot;
    const before = registry.share('proof', ids[0]!);
    const member = registry.addProof();
    const packageId = registry.bundle([ids[0]!, member]);
    registry.endShare(before);
    const after = registry.share('proof', ids[1]!);
    expect(await tick()).toMatchObject({ grants: 1 });
    expect(await published.package(packageId)).toBeNull();
    expect(await published.share(after)).toBeNull();
    expect(await bookmark()).toBe(1);
    expect(await tick()).toMatchObject({ grants: 0 });
    registry.verify();
    // With the very tick that publishes the member.
    expect(await tick()).toMatchObject({ newProofs: 1, grants: 3 });
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
    expect(await published.share(before)).toMatchObject({ artifact_kind: null });
    expect(await published.share(after)).toMatchObject({ proof_id: ids[1] });
  });

  it('keeps back everything behind it, however much that is', async () => {
    const { registry } = snapshot;
    registry.bundle([ids[0]!, registry.addProof()]);
    for (let i = 0; i < 1200; i++) registry.share('proof', ids[0]!);
    expect(await tick()).toMatchObject({ grants: 0 });
    expect(await bookmark()).toBe(0);
    registry.verify();
    expect(await tick()).toMatchObject({ grants: 1201 });
  });

  it('is not taken up again for having been told of anew, over and over', async () => {
    snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    for (let round = 0; round < 6; round++) {
      snapshot.registry.judge(ids[0]!, { outcome: round % 2 === 0 ? 'fail' : 'pass' });
      expect(await tick()).toMatchObject({ judgedAnew: 1, grants: 0 });
      expect(await bookmark()).toBe(1);
    }
    expect(await tick()).toMatchObject({ grants: 0 });
  });

  it('judges by what the same tick publishes of its members', async () => {
    const packageId = snapshot.registry.bundle(ids.slice(0, 3));
    become(ids[2]!, 'revoked');
    await tick();
    expect(await published.statusOf(packageId)).toBe('REVOKED');
  });
});

describe('the parts of the index', () => {
  it('are merged kind by kind, few, with everything findable in its own', async () => {
    const { registry } = snapshot;
    const tokens: string[] = [];
    const packages: string[] = [];
    for (let round = 0; round < 40; round++) {
      ids.push(...registry.addProofs(1 + (round % 7)));
      registry.verify();
      for (let i = 0; i <= round % 5; i++) tokens.push(registry.share('proof', ids[round]!));
      packages.push(registry.bundle([ids[round]!, ids[ids.length - 1]!]));
      if (round % 4 === 0) registry.endShare(tokens[round]!);
      if (round % 6 === 0) become(ids[round]!, 'over');
      await tick();
    }
    const { index_parts: pins } = await published.manifest();
    for (const kind of [PROOF_PARTS, SHARE_PARTS, PACKAGE_PARTS]) {
      const own = pins.filter((pin) => pin.kind === kind);
      expect(own.length).toBeGreaterThan(0);
      expect(own.length).toBeLessThan(9);
    }
    for (const [i, token] of tokens.entries()) {
      const ended = i < 40 && i % 4 === 0;
      const share = await published.share(token);
      expect(share?.artifact_kind).toBe(ended ? null : 'proof');
    }
    for (const packageId of packages) expect(await published.package(packageId)).not.toBeNull();
    for (const id of ids) expect(await published.place(PROOF_PARTS, id)).not.toBeNull();
    for (const id of packages.map((one) => one.slice(4))) {
      expect(await published.place(PROOF_PARTS, id)).toBeNull();
    }
    expect(await bookmark()).toBe(registry.grantChanges.length);
  });

  it('keep the files that they lead to from the janitor, whatever their kind', async () => {
    const token = snapshot.registry.share('proof', ids[0]!);
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await tick();
    for (let hour = 0; hour < 4; hour++) {
      snapshot.clock.at += 61 * 60_000;
      await tick();
    }
    const fresh = new PublishedGrants(snapshot);
    expect(await fresh.share(token)).toMatchObject({ proof_id: ids[0] });
    expect(await fresh.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
  });
});

describe('a snapshot', () => {
  it('from before there were any of this goes on', async () => {
    expect((await published.manifest()).index_parts.map(({ kind }) => kind)).toEqual([PROOF_PARTS]);
    const packageId = snapshot.registry.bundle(ids.slice(0, 2));
    await publisher.close();
    publisher = snapshot.publisher();
    await tick();
    expect(await published.statusOf(packageId)).toBe('TRUST_ESTABLISHED');
  });

  it('that is written from nothing has all of it again, as it is now', async () => {
    const { registry } = snapshot;
    const tokens = Array.from({ length: 30 }, (_, i) => registry.share('proof', ids[i % 6]!));
    const packages = [registry.bundle(ids.slice(0, 2)), registry.bundle(ids.slice(2, 5))];
    registry.endShare(tokens[7]!);
    become(ids[3]!, 'revoked');
    await tick();
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    publisher = snapshot.publisher();
    expect(await tick()).toMatchObject({ newProofs: 6, grants: 33 });
    const fresh = new PublishedGrants(snapshot);
    for (const [i, token] of tokens.entries()) {
      expect((await fresh.share(token))?.artifact_kind).toBe(i === 7 ? null : 'proof');
    }
    expect(await fresh.statusOf(packages[0]!)).toBe('TRUST_ESTABLISHED');
    expect(await fresh.statusOf(packages[1]!)).toBe('REVOKED');
  });

  it('takes up so many changes a tick, so many members, and the rest with the next', async () => {
    const { registry } = snapshot;
    const first = registry.share('proof', ids[0]!);
    for (let i = 0; i < 20_000; i++) registry.share('proof', ids[0]!);
    const last = registry.share('proof', ids[1]!);
    expect(await tick()).toMatchObject({ grants: 20_000 });
    expect(await published.share(first)).not.toBeNull();
    expect(await published.share(last)).toBeNull();
    expect(await tick()).toMatchObject({ grants: 2 });
    expect(await published.share(last)).toMatchObject({ proof_id: ids[1] });

    for (let i = 0; i < 5000; i++) registry.bundle(ids);
    const report = await tick();
    expect(report).toMatchObject({ outcome: 'published' });
    // 20,000 members are looked up, and the step is finished in which that is reached.
    expect((report as { grants: number }).grants).toBe(3500);
    expect(await tick()).toMatchObject({ grants: 1500 });
  }, 30_000);

  it('is not gone on from with a registry that lost changes', async () => {
    const { registry } = snapshot;
    for (const id of ids) registry.share('proof', id);
    await tick();
    const before = readFileSync(join(snapshot.directory, 'lookup/manifest'));
    const lost = registry.grantChanges.splice(4);
    const error: unknown = await tick().catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(PublisherStopped);
    expect((error as PublisherStopped).code).toBe('database_behind');
    expect(String(error)).toMatch(/change 6 .*revoke those tokens again/);
    expect(readFileSync(join(snapshot.directory, 'lookup/manifest'))).toEqual(before);
    // It has made as many since: those, and what they end, were never looked at.
    registry.bundle(ids.slice(0, 2));
    registry.share('proof', ids[0]!);
    registry.share('proof', ids[0]!);
    await expect(tick()).rejects.toMatchObject({ code: 'database_behind' });
    registry.grantChanges.splice(4, Infinity, ...lost);
    await expect(tick()).resolves.toMatchObject({ outcome: 'published' });
  });

  it('whose last change is a package is known by it', async () => {
    const { registry } = snapshot;
    const packageId = registry.bundle(ids.slice(0, 2));
    await tick();
    registry.judge(ids[0]!, { outcome: 'fail' });
    await tick();
    await expect(tick()).resolves.toMatchObject({ outcome: 'published' });
    expect(await published.statusOf(packageId)).toBe('BACKEND_LOOKUP_REQUIRED');
    registry.grantChanges.length = 0;
    registry.bundle(ids.slice(1, 3));
    await expect(tick()).rejects.toMatchObject({ code: 'database_behind' });
  });

  it('takes up no change while one before it is not listed', async () => {
    const { registry } = snapshot;
    registry.share('proof', ids[0]!);
    await tick();
    const [token] = [registry.share('proof', ids[1]!), registry.share('proof', ids[2]!)];
    const [missing] = registry.grantChanges.splice(1, 1);
    await expect(tick()).rejects.toThrow('the registry did not list change 2');
    expect(await published.share(token)).toBeNull();
    registry.grantChanges.splice(1, 0, missing!);
    await tick();
    expect(await published.share(token)).not.toBeNull();
  });

  it.each(['upkeepDoneAt', 'grantChangesSince', 'sharesNow', 'packages', 'packagesWith'] as const)(
    'stays as it was when the registry fails at %s',
    async (question) => {
      const { registry } = snapshot;
      const old = registry.bundle(ids.slice(0, 2));
      await tick();
      const token = registry.share('proof', ids[0]!);
      registry.bundle(ids.slice(2, 4));
      become(ids[0]!, 'over');
      const before = readFileSync(join(snapshot.directory, 'lookup/manifest'));
      registry.asked = (what) => {
        if (what === question) throw new Error('the database is away');
      };
      await expect(tick()).rejects.toThrow('the database is away');
      expect(readFileSync(join(snapshot.directory, 'lookup/manifest'))).toEqual(before);
      registry.asked = () => undefined;
      await tick();
      expect(await published.statusOf(old)).toBe('EXPIRED');
      expect(await published.share(token)).not.toBeNull();
    },
  );
});

describe('a publisher that dies at a write', () => {
  class Killed extends Error {}

  it('leaves tokens, packages and members that agree, and the next one repairs', async () => {
    const { registry } = snapshot;
    const old = registry.bundle(ids.slice(0, 2));
    const ending = registry.share('package', old);
    await tick();
    await publisher.close();
    const origin = snapshot.directory;
    const copy = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
    rmSync(copy, { recursive: true });
    cpSync(origin, copy, { recursive: true });

    become(ids[0]!, 'over');
    registry.addProof();
    registry.verify();
    registry.endShare(ending);
    const young = registry.bundle(ids.slice(2, 4));
    const token = registry.share('proof', ids[2]!);

    const audit = async (): Promise<boolean> => {
      const seen = new PublishedGrants(snapshot);
      const found = {
        member: Buffer.from((await seen.place(PROOF_PARTS, ids[0]!))!.record).includes('EXPIRED'),
        old: await seen.statusOf(old),
        ended: (await seen.share(ending))!.artifact_kind === null,
        young: await seen.statusOf(young),
        token: (await seen.share(token)) !== null,
      };
      const after = found.ended;
      expect(found).toMatchObject(
        after
          ? { member: true, old: 'EXPIRED', young: 'TRUST_ESTABLISHED', token: true }
          : { member: false, old: 'TRUST_ESTABLISHED', young: null, token: false },
      );
      return after;
    };
    const attempt = async (at: number, persisted: boolean): Promise<string[]> => {
      rmSync(origin, { recursive: true });
      cpSync(copy, origin, { recursive: true });
      const writes: string[] = [];
      const step: WriteStep = async (path, write) => {
        const number = writes.push(path) - 1;
        if (number > at || (number === at && !persisted)) throw new Killed(path);
        await write();
        if (number === at) throw new Killed(path);
      };
      publisher = snapshot.publisher({ step });
      if (at === Infinity) await tick();
      else await expect(tick()).rejects.toThrow(Killed);
      await publisher.close();
      return writes;
    };

    const writes = await attempt(Infinity, true);
    expect(await audit()).toBe(true);
    expect(writes.at(-1)).toBe('lookup/manifest');
    // Bodies and parts of the new proof, the one judged anew, packages anew and new, and tokens.
    expect(writes.length).toBeGreaterThanOrEqual(10);
    for (let at = 0; at < writes.length; at++) {
      for (const persisted of [false, true]) {
        const done = await attempt(at, persisted);
        const last = done[at] === 'lookup/manifest' && persisted;
        expect(await audit(), `write ${at}`).toBe(last);
        publisher = snapshot.publisher();
        await tick();
        expect(await audit(), `after write ${at}`).toBe(true);
        await publisher.close();
      }
    }
    rmSync(copy, { recursive: true });
  }, 60_000);
});

describe('a publisher that stops because the registry contradicts itself', () => {
  const stop = async (): Promise<void> => {
    await expect(tick()).rejects.toThrow(PublisherStopped);
  };
  beforeEach(async () => {
    ids = snapshot.registry.addProofs(300);
    snapshot.registry.verify();
    await tick();
  });
  /** The log grows over a tile that is damaged. */
  const damage = (): void => {
    snapshot.registry.corruptTile(0, 1, 5);
    snapshot.registry.addProof();
    snapshot.registry.verify();
  };

  it('withdraws packages with the proofs that fail, and takes up nothing else', async () => {
    const { registry } = snapshot;
    const failing = registry.bundle([ids[0]!, ids[1]!]);
    const sound = registry.bundle([ids[2]!]);
    const ending = registry.share('proof', ids[2]!);
    await tick();
    damage();
    become(ids[1]!, 'failed');
    become(ids[2]!, 'over');
    registry.endShare(ending);
    const late = registry.bundle([ids[3]!]);
    await stop();
    const fresh = new PublishedGrants(snapshot);
    expect(await fresh.statusOf(failing)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await fresh.statusOf(sound)).toBe('TRUST_ESTABLISHED');
    expect(await fresh.share(ending)).toMatchObject({ proof_id: ids[2] });
    expect(await fresh.package(late)).toBeNull();
    expect(await bookmark()).toBe(3);
    // Mended, it goes on where it was.
    registry.corruptTile(0, 1, 5);
    await publisher.close();
    publisher = snapshot.publisher();
    expect(await tick()).toMatchObject({ grants: 2 });
    expect(await published.statusOf(failing)).toBe('BACKEND_LOOKUP_REQUIRED');
    expect(await published.statusOf(sound)).toBe('EXPIRED');
    expect(await published.share(ending)).toMatchObject({ artifact_kind: null });
    expect(await published.statusOf(late)).toBe('TRUST_ESTABLISHED');
  });

  it('lets no package assert again, whatever the registry says is in it', async () => {
    const { registry } = snapshot;
    const withheld = registry.bundle([ids[0]!]);
    registry.bundle([ids[1]!]);
    become(ids[0]!, 'failed');
    await tick();
    // The registry hides that the package is to be told of anew.
    registry.packagesWith = () => Promise.resolve([]);
    registry.judge(ids[0]!, { outcome: 'pass' });
    await tick();
    expect(await published.statusOf(withheld)).toBe('BACKEND_LOOKUP_REQUIRED');
    registry.packagesWith = () => Promise.resolve(registry.bundles.map((one) => one.packageId));
    damage();
    become(ids[1]!, 'failed');
    await stop();
    expect(await published.statusOf(withheld)).toBe('BACKEND_LOOKUP_REQUIRED');
  });
});

describe('a verifier that is silent', () => {
  const VALID_FOR = 15 * 60_000;
  const manifestBytes = () => readFileSync(join(snapshot.directory, 'lookup/manifest'));
  const validUntil = async () => (await published.manifest()).valid_until;

  it('lets the public go on asserting for so long after it last looked, and no longer', async () => {
    const { registry, clock } = snapshot;
    const lookedAt = clock.at;
    registry.lookedAt = lookedAt;
    clock.at = lookedAt + 60_000;
    await publisher.tick();
    expect(await validUntil()).toBe(formatTime(lookedAt + VALID_FOR));
    clock.at = lookedAt + VALID_FOR - 1;
    await publisher.tick();
    expect((await published.manifest()).issued_at).toBe(formatTime(clock.at));
    expect(await validUntil()).toBe(formatTime(lookedAt + VALID_FOR));
    const before = manifestBytes();
    const checkpoints = registry.checkpoints.length;

    clock.at = lookedAt + VALID_FOR;
    registry.addProof();
    registry.verify();
    const silent = { outcome: 'verifier_silent', looked_at: formatTime(lookedAt) };
    expect(await publisher.tick()).toEqual(silent);
    clock.at += 3_600_000;
    expect(await publisher.tick()).toEqual(silent);
    expect(manifestBytes()).toEqual(before);
    expect(registry.checkpoints).toHaveLength(checkpoints);

    registry.lookedAt = clock.at - 200;
    expect(await publisher.tick()).toMatchObject({ outcome: 'published', newProofs: 1 });
    expect(await validUntil()).toBe(formatTime(clock.at - 200 + VALID_FOR));
  });

  it('from the beginning has nothing published at all', async () => {
    const { registry } = snapshot;
    await publisher.close();
    rmSync(snapshot.directory, { recursive: true });
    registry.lookedAt = null;
    publisher = snapshot.publisher();
    expect(await tick()).toEqual({ outcome: 'verifier_silent', looked_at: null });
    expect(existsSync(join(snapshot.directory, 'lookup'))).toBe(false);
    expect(existsSync(join(snapshot.directory, 'checkpoint'))).toBe(false);
  });

  it('whose clock is ahead lengthens nothing', async () => {
    snapshot.registry.lookedAt = snapshot.clock.at + 3_600_000;
    await publisher.tick();
    expect(await validUntil()).toBe(formatTime(snapshot.clock.at + VALID_FOR));
  });

  it('is asked before everything that it might have found', async () => {
    const asked: string[] = [];
    snapshot.registry.asked = (what) => asked.push(what);
    await tick();
    expect(asked[0]).toBe('upkeepDoneAt');
  });

  it('does not hide that the registry is behind', async () => {
    snapshot.registry.lookedAt = START - VALID_FOR;
    snapshot.registry.truncate(3);
    await expect(tick()).rejects.toThrow(PublisherStopped);
  });

  it('is told apart from a tick that takes longer: what that wrote is over, and gone on from', async () => {
    const { registry, clock } = snapshot;
    registry.addProof();
    registry.verify();
    registry.lookedAt = clock.at;
    registry.asked = (what) => {
      if (what === 'leaves') clock.at += VALID_FOR;
    };
    const began = clock.at;
    expect(await publisher.tick()).toMatchObject({ outcome: 'published', newProofs: 1 });
    const { issued_at, valid_until } = await published.manifest();
    expect([issued_at, valid_until]).toEqual([formatTime(began), formatTime(began + VALID_FOR)]);
    expect(clock.at).toBeGreaterThanOrEqual(began + VALID_FOR);
    registry.lookedAt = undefined;
    expect(await publisher.tick()).toMatchObject({ outcome: 'published', newProofs: 0 });
    expect(await validUntil()).toBe(formatTime(clock.at + VALID_FOR));
  });
});

describe('more changes than one tick takes up', () => {
  const VALID_FOR = 15 * 60_000;
  const ends = async () => Date.parse((await published.manifest()).valid_until);

  it('of verdicts: nothing asserts for longer until they are all in, nor for ever', async () => {
    const { registry, clock } = snapshot;
    const until = await ends();
    for (let i = 0; i < 40_000; i++) registry.judge(ids[0]!);
    registry.judge(ids[1]!, { expired: ['proof'] });
    await tick();
    expect(await ends()).toBe(until);
    // The end of what it had said is there meanwhile: it goes on all the same, and asserts nothing.
    clock.at = until + 1000;
    expect(await publisher.tick()).toMatchObject({ outcome: 'published', judgedAnew: 0 });
    expect(await ends()).toBe(until);
    expect(await publisher.tick()).toMatchObject({ outcome: 'published', judgedAnew: 1 });
    expect(await ends()).toBe(clock.at + VALID_FOR);
  });

  it('of tokens and packages, likewise; to wait for a member is something else', async () => {
    const { registry, clock } = snapshot;
    const until = await ends();
    for (let i = 0; i < 20_001; i++) registry.share('proof', ids[0]!);
    await tick();
    expect(await ends()).toBe(until);
    for (let i = 0; i < 3501; i++) registry.bundle(ids);
    await tick();
    expect(await ends()).toBe(until);
    const waiting = registry.bundle([registry.addProof()]);
    await tick();
    expect(await published.package(waiting)).toBeNull();
    expect(await ends()).toBe(clock.at + VALID_FOR);
  }, 30_000);
});
