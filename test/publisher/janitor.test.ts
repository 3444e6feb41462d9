import {
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { basename, join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Publisher } from '#publisher/publisher';
import { Janitor } from '#publisher/store/published-files';
import { DirectoryStore } from '#runtime/store/directory';
import { bucketLike } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const MINUTE = 60_000;

const snapshot = useSnapshot();

const at = (path: string): string => join(snapshot.directory, path);
const pages = (): string[] =>
  snapshot
    .pages()
    .map((path) => basename(path))
    .sort();

async function publishProofs(publisher: Publisher, count: number) {
  snapshot.grow(count);
  await publisher.runCycle();
}

async function publishAfter(publisher: Publisher, ...minutes: number[]) {
  for (const pause of minutes) {
    snapshot.clock.at += pause * MINUTE;
    snapshot.registry.verify();
    await publisher.runCycle();
  }
}

describe('janitor', () => {
  it('keeps superseded pages for an hour, and keeps the pages of the published maps', async () => {
    const publisher = snapshot.publisher();
    const [id] = snapshot.registry.addProofs(1);
    await publishProofs(publisher, 200);
    const first = pages();
    await publishProofs(publisher, 200);
    snapshot.registry.share('proof', id!);
    await publisher.runCycle();
    await publishAfter(publisher, 6, 53);
    expect(pages()).toEqual(expect.arrayContaining(first));
    await publishAfter(publisher, 6, 6, 6);
    expect(first.filter((name) => pages().includes(name)).length).toBeLessThan(first.length);
    const { shares } = await snapshot.published();
    expect(shares.size).toBe(1);
    // The superseded pages of the last hour are removed too, so only pages of the maps are left.
    const before = pages().length;
    await publishAfter(publisher, 61);
    expect(pages().length).toBeLessThanOrEqual(before);
    await snapshot.published();
  });

  it('keeps superseded pages although the clock is set an hour ahead', async () => {
    const publisher = snapshot.publisher({ monotonic: { now: () => 0 } });
    await publishProofs(publisher, 200);
    const first = pages();
    await publishProofs(publisher, 200);
    await publishAfter(publisher, 61, 6);
    expect(pages()).toEqual(expect.arrayContaining(first));
  });

  it('keeps a superseded page when a map uses that page again', async () => {
    const name = 'ab'.repeat(32);
    mkdirSync(at('map/ab'), { recursive: true });
    writeFileSync(at(`map/ab/${name}`), 'x');
    const janitor = new Janitor(new DirectoryStore(snapshot.directory));
    const live = async function* () {
      yield await Promise.resolve(name);
    };
    const sweep = (now: number) => janitor.sweep(live, 0, now, () => Promise.resolve());
    janitor.supersede([name], 0);
    janitor.keep(name);
    expect(await sweep(0)).toEqual([]);
    expect(await sweep(61 * MINUTE)).toEqual([]);
    // A second publisher uses the page again.
    janitor.supersede([name], 62 * MINUTE);
    janitor.scanAgain();
    expect(await sweep(123 * MINUTE)).toEqual([]);
    expect(pages()).toEqual([name]);
  });

  it('removes no page that another publisher publishes again during the sweep', async () => {
    const { registry } = snapshot;
    let whileListing = (): Promise<unknown> => Promise.resolve();
    const open = () =>
      bucketLike(snapshot.directory, (store) => ({
        async *list(folder) {
          await whileListing();
          yield* store.list(folder);
        },
      }));
    const [id] = snapshot.grow(1);
    registry.share('proof', id!);
    const publisher = snapshot.publisher({ directory: open() });
    await publisher.runCycle();
    const second = registry.share('proof', id!);
    await publishAfter(publisher, 1);
    registry.onCall = () => {
      throw new Error('the primary is down');
    };
    await expect(publisher.runCycle()).rejects.toThrow('down');
    registry.onCall = () => undefined;
    const other = snapshot.publisher({ directory: open() });
    whileListing = () => {
      whileListing = () => Promise.resolve();
      registry.endShare(second);
      return other.runCycle();
    };
    await expect(publishAfter(publisher, 70)).rejects.toThrow('another publisher');
    expect((await snapshot.published()).shares.size).toBe(1);
  });

  it('removes other files before a file that could not be deleted, five minutes later', async () => {
    mkdirSync(at('map'), { recursive: true });
    for (let i = 0; i < 250; i++) writeFileSync(at(`map/unknown-${i}`), '');
    const attempts: (readonly string[])[] = [];
    const directory = bucketLike(snapshot.directory, (store) => ({
      remove: async (paths) => {
        attempts.push(paths);
        if (paths.includes('map/unknown-0')) throw new Error('permission denied');
        await store.remove(paths);
      },
    }));
    const publisher = snapshot.publisher({ directory });
    await publishProofs(publisher, 1);
    await publishAfter(publisher, 61, 1, 4);
    expect(attempts.map(({ length }) => length)).toEqual([200, 50]);
  });

  it('removes 200 of 500 replaced files in one cycle', async () => {
    mkdirSync(at('map'), { recursive: true });
    for (let i = 0; i < 500; i++) writeFileSync(at(`map/unknown-${i}`), '');
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 1);
    const left: number[] = [];
    for (const minutes of [61, 0, 0]) {
      await publishAfter(publisher, minutes);
      left.push(readdirSync(at('map')).filter((name) => name.startsWith('unknown')).length);
    }
    expect(left).toEqual([300, 100, 0]);
  });

  it('finds a lost page, and the same cycle writes the page again', async () => {
    const [id] = snapshot.grow(1);
    const before = snapshot.publisher();
    await publishProofs(before, 300);
    await before.close();
    const lost = snapshot
      .pages()
      .find((path) => readFileSync(path)[0] === 0 && readFileSync(path).includes(id!, 0, 'hex'))!;
    rmSync(lost);
    snapshot.clock.at += 1000;
    const [next] = snapshot.grow(1);
    await snapshot.publisher().runCycle();
    const published = await snapshot.published();
    expect([published.status(id!), published.status(next!)]).toEqual(['VALID', 'VALID']);
  });

  it('removes partial tiles an hour after their full tile exists', async () => {
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 100);
    await publishAfter(publisher, ...Array<number>(20).fill(6));
    expect(existsSync(at('tile/0/000.p/104'))).toBe(true);
    await publishProofs(publisher, 300);
    await publishAfter(publisher, 6);
    expect(existsSync(at('tile/0/000.p/104'))).toBe(true);
    await publishAfter(publisher, ...Array<number>(11).fill(6));
    expect(existsSync(at('tile/0/000.p'))).toBe(false);
    expect(existsSync(at('tile/entries/000.p'))).toBe(false);
    expect(existsSync(at('tile/0/000'))).toBe(true);
    expect(existsSync(at('tile/0/001.p'))).toBe(true);
    expect(existsSync(at('tile/1/000.p/1'))).toBe(true);
  });

  it.each(['the same', 'a restarted'])(
    'keeps partial tiles beside full tiles that no checkpoint covers (%s publisher)',
    async (which) => {
      const { registry } = snapshot;
      // The log gets no entries for more than an hour.
      const rare = { snapshotTtlMs: 6 * 60 * MINUTE };
      const failed = snapshot.publisher(rare);
      await publishProofs(failed, 280);
      const kept = registry.size;
      registry.onCall = (what) => {
        if (what === 'insertCheckpoint') throw new Error('the primary is down');
      };
      await expect(publishProofs(failed, 300)).rejects.toThrow('the primary is down');
      registry.onCall = () => undefined;
      registry.truncate(kept);
      let publisher = failed;
      if (which === 'a restarted') {
        await failed.close();
        publisher = snapshot.publisher(rare);
      }
      snapshot.clock.at += MINUTE;
      await publishProofs(publisher, 20);
      for (let i = 0; i < 22; i++) {
        snapshot.clock.at += 6 * MINUTE;
        expect(await publisher.runCycle()).toMatchObject({ outcome: 'unchanged' });
      }
      expect(existsSync(at('tile/0/001'))).toBe(true);
      await snapshot.published();
      // A checkpoint that covers the full tile supersedes the partial tiles.
      await publishProofs(publisher, 300);
      await publishAfter(publisher, ...Array<number>(12).fill(6));
      expect(existsSync(at('tile/0/001.p'))).toBe(false);
    },
  );

  it('removes partial tiles that another publisher wrote while this publisher was the standby', async () => {
    const [publisher, other] = [snapshot.publisher(), snapshot.publisher()];
    await publishProofs(publisher, 100);
    await publisher.close();
    await publishProofs(other, 10);
    expect(await publisher.runCycle()).toEqual({ outcome: 'standby' });
    await other.close();
    expect(readdirSync(at('tile/0/000.p'))).toHaveLength(2);
    await publishProofs(publisher, 300);
    await publishAfter(publisher, ...Array<number>(12).fill(6));
    expect(existsSync(at('tile/0/000'))).toBe(true);
    expect(existsSync(at('tile/0/000.p'))).toBe(false);
    expect(existsSync(at('tile/entries/000.p'))).toBe(false);
  });

  it('lists the tiles once, and reports progress for each listed file', async () => {
    const store = new DirectoryStore(snapshot.directory);
    const list = vi.spyOn(store, 'list');
    const publisher = snapshot.publisher({ directory: store });
    await publishProofs(publisher, 300);
    for (let i = 0; i < 1_000; i++) writeFileSync(at(`tile/unknown-${i}`), '');
    const restarted = snapshot.publisher({ directory: store });
    await publisher.close();
    snapshot.registry.verify();
    await restarted.runCycle();
    expect(restarted.progress()).toBeGreaterThan(1_000);
    await publishAfter(restarted, 6, 6);
    expect(list.mock.calls.filter(([folder]) => folder === 'tile')).toHaveLength(2);
  });

  it('lets a cycle succeed although superseded pages cannot be deleted', async () => {
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 200);
    await publishProofs(publisher, 200);
    const remove = vi.spyOn(DirectoryStore.prototype, 'remove');
    remove.mockRejectedValue(new Error('permission denied'));
    onTestFinished(() => remove.mockRestore());
    await publishAfter(publisher, 61);
    expect(remove).toHaveBeenCalledWith(expect.arrayContaining([expect.stringMatching(/^map/)]));
  });

  it('removes staged files of a crashed publisher at once, and unreferenced files after an hour', async () => {
    mkdirSync(at('.staging'), { recursive: true });
    mkdirSync(at('map/00'), { recursive: true });
    writeFileSync(at('.staging/half'), 'x');
    writeFileSync(at(`map/00/${'0'.repeat(64)}`), 'x');
    const publisher = snapshot.publisher();
    await publishProofs(publisher, 1);
    expect(readdirSync(at('.staging'))).toEqual([]);
    expect(pages()).toContain('0'.repeat(64));
    await publishAfter(publisher, 61);
    expect(pages()).not.toContain('0'.repeat(64));
  });

  it('keeps no staged file of a failed write', async () => {
    // A link to a missing folder makes the write fail after the file is staged.
    symlinkSync('missing', at('map'));
    const publisher = snapshot.publisher();
    await expect(publishProofs(publisher, 1)).rejects.toThrow('ENOTDIR');
    expect(readdirSync(at('.staging'))).toEqual([]);
  });
});
