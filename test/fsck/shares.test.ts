import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import { Findings } from '#fsck/findings';
import type { RegistryContext } from '#fsck/registry/context';
import { compareShares, readShares } from '#fsck/snapshot/shares';
import { toBase64, toHex } from '#protocol/bytes';
import { shareMapKey } from '#protocol/evidence/shares';
import type { SnapshotEntry } from '#protocol/schemas/log-entry';
import { LOCATION_PATH, openLocation, pageIdOf, pagePath } from '#protocol/snapshot/location';
import { pinKeys } from '#protocol/snapshot/trust';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { openFiles } from '#sdk/cli/monitor/files';
import { copyableRegistry, type CopyableRegistry } from '../fixtures/damaged-copies.js';

type Records = ReadonlyMap<string, Uint8Array>;

let opened: CopyableRegistry;
beforeAll(async () => {
  opened = await copyableRegistry();
});
afterEach(() => opened.copies.clear());
afterAll(() => opened.drop());

/** A copy of the registry and its snapshot, whose checks return the number of findings by code. */
async function openCopy() {
  const { sql, directory, file } = await opened.copies.copy();
  const log = pinKeys(nativeSha256, [opened.sound.logVkey]);
  const snapshot = openLocation(nativeCrypto, readFileSync(file(LOCATION_PATH)), log);
  const contexts = () => {
    const findings = new Findings();
    const registry = { sql, findings } as unknown as RegistryContext;
    return { ctx: { files: openFiles(directory, {}), findings, log }, registry };
  };
  /** Reads the published records, with some members of the snapshot entry replaced. */
  const read = async (members: Partial<SnapshotEntry> = {}) => {
    const { ctx } = contexts();
    const entry = { ...snapshot.snapshot, ...members };
    const records = await readShares(ctx, { ...snapshot, snapshot: entry });
    return { records, found: ctx.findings.state.counts };
  };
  /**
   * Compares records with the registry; `change`, `now` and `size` replace the last change, the time and
   * the size of the snapshot.
   */
  const compare = async (
    records: Records,
    { change, now, size }: { change?: number; now?: number; size?: number } = {},
  ) => {
    const { ctx, registry } = contexts();
    const [entry] = snapshot.snapshot.logs;
    const expired_through = now === undefined ? entry!.expired_through : formatTime(now);
    const share_change = change ?? snapshot.location.share_change;
    const compared = {
      ...snapshot,
      location: { ...snapshot.location, share_change },
      snapshot: {
        ...snapshot.snapshot,
        logs: [{ ...entry!, expired_through, size: size ?? entry!.size }],
      },
    };
    await compareShares(ctx, registry, compared, records);
    return ctx.findings.state.counts;
  };
  return { sql, read, compare, page: file(pagePath(pageIdOf(snapshot.location.shares)!)) };
}

describe('fsck of published shares and packages', () => {
  it('accepts the records of the registry, and finds missing, altered and invented records', async () => {
    const { sql, read, compare } = await openCopy();
    const published = (await read()).records!;
    expect(await compare(published)).toEqual({});
    const [[key, record], ...others] = [...published] as [
      [string, Uint8Array],
      ...[string, Uint8Array][],
    ];
    const [, other] = others.at(-1)!;
    expect(await compare(new Map(others))).toEqual({ share_record_missing: 1 });
    for (const altered of [other, new Uint8Array(1)]) {
      const differing = new Map(published).set(key, altered);
      expect(await compare(differing)).toEqual({ share_record_differs: 1 });
    }
    const [ended] = await sql<[{ hash: Buffer }]>`
      select token_hash as hash from svc.share_revocation`;
    const revived = new Map(published).set(toHex(shareMapKey(ended.hash)), record);
    expect(await compare(revived)).toEqual({ share_record_differs: 1 });
    const invented = new Map(published).set('04'.repeat(17), record);
    expect(await compare(invented)).toEqual({ share_record_unknown: 1 });
  });

  it('advises the operator to repeat the revocation of a token if a restored database lost the revocation', async () => {
    const { sql, read, compare } = await openCopy();
    // A restored database has lost a revocation that the snapshot has.
    await sql.unsafe('set session_replication_role = replica; delete from svc.share_revocation');
    expect(await compare((await read()).records!)).toEqual({ share_record_missing: 1 });
    const findings = new Findings();
    findings.add('share_record_missing', '', '');
    expect(findings.state.reported[0]!.advice).toMatch(/first revoke .* again/);
  });

  it('accepts only missing packages with a member that the snapshot does not cover', async () => {
    const { read, compare } = await openCopy();
    const published = (await read()).records!;
    const [missing] = [...published.keys()].filter((key) => key.startsWith('03'));
    const others = new Map([...published].filter(([key]) => key !== missing));
    expect(await compare(others, { size: 0 })).toEqual({});
    expect(await compare(others)).toEqual({ share_record_missing: 1 });
    expect(await compare(new Map(), { size: 0 })).toHaveProperty('share_record_missing');
  });

  it('finds a withheld change once the snapshot is newer', async () => {
    const { read, compare } = await openCopy();
    const { size } = (await read()).records!;
    const [soon, before] = [1, -1].map((hours) => Date.now() + hours * 3_600_000);
    const none: Records = new Map();
    expect(await compare(none, { change: 0, now: soon! })).toEqual({ share_record_missing: size });
    expect(await compare(none, { change: 0, now: before! })).toEqual({});
  });

  it('finds lost and altered pages, and a root that differs from the snapshot entry', async () => {
    const { read, page } = await openCopy();
    const shares_root = toBase64(new Uint8Array(32));
    expect((await read({ shares_root })).found).toEqual({ shares_root_differs: 1 });
    writeFileSync(page, 'altered');
    expect(await read()).toEqual({ records: null, found: { map_page_altered: 1 } });
    rmSync(page);
    expect(await read()).toEqual({ records: null, found: { map_page_missing: 1 } });
  });
});
