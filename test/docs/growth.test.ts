import { execFile } from 'node:child_process';
import { mkdtempSync, readFileSync } from 'node:fs';
import { lstat, mkdir, readdir, utimes } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Publisher } from '#publisher/publisher';
import { packageRoot } from '#runtime/process/files';
import { freshDatabase, type TestDatabase } from '../fixtures/database.js';
import { openRegistry, type TestRegistry } from '../fixtures/registry.js';
import { fsck, publicStatuses } from '../fixtures/restored-service.js';
import { sqlPublisher, testKeys } from '../fixtures/sql-publisher.js';

/** Tests the steps that docs/operate.md describes for a full disk. */

const DAY = 86_400_000;
const [, section = ''] = readFileSync(join(packageRoot, 'docs/operate.md'), 'utf8').split(
  '\n## Growth, retention, archiving\n',
);
const blocks = [...(section.split('\n## ')[0] ?? '').matchAll(/^```\n(.*?)^```/gms)].map(
  ([, code = '']) => code,
);

let db: TestDatabase;
let registry: TestRegistry;
let publisher: Publisher;
let old: string[];
const home = mkdtempSync(join(tmpdir(), 'svc-growth-'));
const directory = join(home, 'srv/public');
const archive = join(home, 'archive');
const keys = testKeys();

beforeAll(async () => {
  db = await freshDatabase();
  registry = await openRegistry(db);
  publisher = sqlPublisher(db.as('svc_publisher', 1), { directory, ...keys });
  // A full tile and a partial tile.
  old = await admit(290);
  await publish();
});
afterAll(async () => {
  await publisher.close();
  await db.drop();
});

const admit = (count: number): Promise<string[]> =>
  registry.admitAll(Array.from({ length: count }, () => registry.item()));

async function publish(by = publisher): Promise<void> {
  await registry.reportAll();
  expect(await by.runCycle()).toMatchObject({ outcome: 'published' });
}

/** Distinct HTTP statuses of these proofs from a public API server `days` in the future. */
const statuses = (ids: readonly string[], days = 0): Promise<number[]> =>
  publicStatuses(directory, keys, ids, { now: () => Date.now() + days * DAY });

const check = (env: Record<string, string> = {}) => fsck(db, { directory, home, ...keys }, env);

async function files(): Promise<{ path: string; isLink: boolean }[]> {
  const all = await readdir(directory, { recursive: true });
  const found = await Promise.all(
    all.map(async (path) => ({ path, at: await lstat(join(directory, path)) })),
  );
  return found
    .filter(({ at }) => !at.isDirectory())
    .map(({ path, at }) => ({ path, isLink: at.isSymbolicLink() }));
}

// The script requires GNU tools.
describe.skipIf(process.platform !== 'linux')('snapshot files older than 30 days', () => {
  const move = async (from = directory): Promise<void> => {
    const script = blocks[0]!.replaceAll('/srv/public', from).replaceAll('/archive', archive);
    await promisify(execFile)('bash', ['-euc', script]);
  };

  it('are served after the documented script moves them to another disk', async () => {
    const recent = (await files()).map(({ path }) => path);
    await move();
    expect((await files()).filter(({ isLink }) => isLink)).toEqual([]);

    const at = (Date.now() - 31 * DAY) / 1000;
    for (const path of recent) await utimes(join(directory, path), at, at);
    await move();
    const moved = (await files()).filter(({ isLink }) => isLink).map(({ path }) => path);
    const isFixed = (path: string): boolean =>
      /^(?:map|tile)\//.test(path) && !path.includes('.p/');
    expect(moved.sort()).toEqual(recent.filter(isFixed).sort());
    expect(moved).toContain('tile/0/000');
    expect(await statuses(old)).toEqual([200]);

    const more = await admit(20);
    await publish();
    expect(await statuses([...old, ...more])).toEqual([200]);
    expect(await check()).toMatchObject({ code: 0, corrupt: {} });
    // If the publisher rewrote a moved file, it would replace the link by a file.
    expect((await files()).filter(({ isLink }) => isLink)).toHaveLength(moved.length);

    // With the snapshot unmounted, every archived file would look unreferenced.
    const unmounted = join(home, 'unmounted');
    await mkdir(unmounted);
    await expect(move(unmounted)).rejects.toThrow();
  });
});

it('retired log with a successor > is served for a day without its database, and expires afterwards', async () => {
  await publisher.close();
  const [, hours = ''] = /SNAPSHOT_TTL=(\d+)h/.exec(section) ?? [];
  const days = Number(hours) / 24;
  const rare = sqlPublisher(db.as('svc_publisher', 1), {
    directory,
    ...keys,
    snapshotTtlMs: days * DAY,
  });
  await publish(rare);
  await rare.close();
  expect(await check()).toMatchObject({ code: 0, corrupt: {} });
  expect(await statuses(old.slice(0, 3), days - 0.1)).toEqual([200]);
  expect(await statuses(old.slice(0, 3), days + 0.1)).toEqual([503]);
});
