import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Findings } from '#fsck/findings';
import type { RegistryContext } from '#fsck/registry/context';
import type { SnapshotContext } from '#fsck/snapshot/heads';
import { compareShares, readShares } from '#fsck/snapshot/shares';
import { fromHex, toBase64, toHex } from '#protocol/bytes';
import { canonicalBytes, type JsonValue } from '#protocol/json';
import { mapKey } from '#protocol/map/nodes';
import { MapPages } from '#protocol/map/pages';
import { pagePath, type OpenedLocation } from '#protocol/snapshot/location';
import { sha256 } from '../fixtures/leaves.js';
import { MemoryStore } from '../fixtures/map-store.js';
import { filesOf } from '../fixtures/served-log.js';
import { soundPlantation, type SoundPlantation } from '../fixtures/sound-plantation.js';

type Records = Map<string, Uint8Array>;

let opened: SoundPlantation;
beforeAll(async () => {
  opened = await soundPlantation();
});
afterEach(() => opened.plantation.clear());
afterAll(() => opened.drop());

const recordOf = (name: string, members: Record<string, JsonValue>): Uint8Array =>
  canonicalBytes({ schema_version: `svc.registry.${name}/1.0`, ...members });

/** The records of a registry's shares and packages, the key of an ended token, and the last change. */
async function registryOf({ sql }: Pick<RegistryContext, 'sql'>) {
  const published: Records = new Map();
  const keyOf = (hash: string): string => toHex(mapKey('share', fromHex(hash.slice(0, 32))));
  const tokens = await sql<{ hash: string; kind: string; id: string; ended: boolean }[]>`
    select encode(t.token_hash, 'hex') as hash, artifact_kind as kind,
      coalesce('pkg_' || replace(package_id::text, '-', ''), replace(proof_id::text, '-', '')) as id,
      r.token_hash is not null or e.token_hash is not null as ended
    from svc.share_token t left join svc.share_revocation r using (token_hash)
      left join svc.share_expiry e on e.token_hash = t.token_hash`;
  for (const { hash, kind, id, ended } of tokens) {
    const record = recordOf('share', { token_hash: hash, artifact_kind: kind, id });
    if (!ended) published.set(keyOf(hash), record);
  }
  const packages = await sql<{ id: string; members: string[] }[]>`
    select replace(package_id::text, '-', '') as id,
      array_agg(replace(proof_id::text, '-', '') order by position) as members
    from svc.package_member group by package_id`;
  for (const { id, members } of packages) {
    const record = recordOf('package', { package_id: `pkg_${id}`, members });
    published.set(toHex(mapKey('package', fromHex(id))), record);
  }
  const [head] = await sql<[{ last: number }]>`select change_no as last from svc.grant_head`;
  return { published, ended: keyOf(tokens.find((token) => token.ended)!.hash), last: head.last };
}

/** Counts of the findings by code, when these records are published up to `shareChange`. */
async function codesOf(published: Records, shareChange: number, now = Date.now() + 3_600_000) {
  const { sql } = await opened.plantation.copy();
  const findings = new Findings();
  const expired_through = new Date(now).toISOString();
  await compareShares(
    { findings } as SnapshotContext,
    { sql, findings } as unknown as RegistryContext,
    {
      location: { share_change: shareChange },
      snapshot: { logs: [{ size: 1e9, expired_through }] },
    } as OpenedLocation,
    published,
  );
  return findings.state.counts;
}

describe('fsck of published shares and packages', () => {
  it('accepts the records of the registry, and finds missing, altered and invented records', async () => {
    const { published, ended, last } = await registryOf(await opened.plantation.copy());
    expect(await codesOf(published, last)).toEqual({});
    const [[shareKey, share], ...others] = [...published] as [
      [string, Uint8Array],
      ...[string, Uint8Array][],
    ];
    const [, packageRecord] = others.at(-1)!;
    expect(await codesOf(new Map(others), last)).toEqual({ share_record_missing: 1 });
    for (const altered of [packageRecord, new Uint8Array(1)]) {
      const differing = new Map(published).set(shareKey, altered);
      expect(await codesOf(differing, last)).toEqual({ share_record_differs: 1 });
    }
    const revived = new Map(published).set(ended, share);
    expect(await codesOf(revived, last)).toEqual({ share_record_differs: 1 });
    const invented = new Map(published).set('04'.repeat(17), share);
    expect(await codesOf(invented, last)).toEqual({ share_record_unknown: 1 });
  });

  it('finds a withheld change once the snapshot is newer', async () => {
    const { published } = await registryOf(await opened.plantation.copy());
    const none: Records = new Map();
    expect(await codesOf(none, 0)).toEqual({ share_record_missing: published.size });
    expect(await codesOf(none, 0, Date.now() - 3_600_000)).toEqual({});
  });
});

it('readShares > reads the map of the snapshot, and reports lost pages and a root that differs', async () => {
  const store = new MemoryStore();
  const changes = Array.from({ length: 300 }, (_, n) => ({
    key: mapKey('share', sha256(Uint8Array.of(n, n >> 8)).slice(0, 16)),
    value: { record: Uint8Array.of(n), history: new Uint8Array(0) },
  }));
  const { head } = await new MapPages(sha256, store).update(null, changes);
  const files = new Map(
    [...store.pages.values()].map((bytes) => [pagePath({ digest: sha256(bytes) }), bytes]),
  );
  const read = async (root: Uint8Array) => {
    const ctx = { findings: new Findings(), files: filesOf(files) } as unknown as SnapshotContext;
    const shares = { level: head!.level, digest: toHex(head!.digest) };
    const snapshot = { shares_root: toBase64(root) };
    const found = await readShares(ctx, { location: { shares }, snapshot } as OpenedLocation);
    return [found?.size, ctx.findings.state.counts];
  };
  expect(await read(head!.hash)).toEqual([300, {}]);
  expect(await read(new Uint8Array(32))).toEqual([300, { shares_root_differs: 1 }]);
  const [path] = files.keys();
  files.set(
    path!,
    files.get(path!)!.map((byte) => byte ^ 1),
  );
  expect(await read(head!.hash)).toEqual([undefined, { map_page_altered: 1 }]);
  files.delete(path!);
  expect(await read(head!.hash)).toEqual([undefined, { map_page_missing: 1 }]);
});
