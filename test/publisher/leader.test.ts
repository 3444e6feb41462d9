import { existsSync, mkdirSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { LeaseLostError } from '#publisher/errors';
import type { Lease } from '#publisher/registry/lease';
import { runPublisher } from '#publisher/publisher';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
beforeEach(() => {
  snapshot.grow(3);
});

const location = (): string => readFileSync(join(snapshot.directory, 'lookup/snapshot'), 'utf8');

/** @param lostAt the number of the check that finds the lease lost */
function testLease(isFree: boolean, lostAt = Infinity): Lease {
  let checks = 0;
  return {
    take: () => Promise.resolve(isFree),
    held: () => Promise.resolve(++checks < lostAt),
    release: () => Promise.resolve(),
  };
}

describe('publisher lease', () => {
  it('releases the directory when another publisher holds the lease on the registry', async () => {
    const standby = snapshot.publisher({ leases: [testLease(false)] });
    expect(await standby.runCycle()).toEqual({ outcome: 'standby' });
    expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'published' });
  });

  it('names a lock whose time is in the future, because such a lock may be left from a crash', async () => {
    const lines: string[] = [];
    const log = pino({}, { write: (line: string) => void lines.push(line) });
    const path = join(snapshot.directory, '.lock');
    mkdirSync(path);
    utimesSync(path, 4_102_444_800.123, 4_102_444_800.123);
    expect(await snapshot.publisher({ log }).runCycle()).toEqual({ outcome: 'standby' });
    expect(lines.join('')).toContain(`the lock ${path} has the time 2100-01-01T00:00:00.12`);
    rmSync(path, { recursive: true });
  });

  it.each([
    [1, 'entry, signature and snapshot', { entries: 0, checkpoints: 0 }],
    [2, 'signature and snapshot', { entries: 1, checkpoints: 0 }],
    [3, 'snapshot', { entries: 1, checkpoints: 1 }],
  ])('that is lost before write %i prevents a new %s', async (lostAt, _, made) => {
    const { registry } = snapshot;
    await snapshot.publishOnce();
    const before = location();
    registry.verify();
    const { size } = registry;
    const publisher = snapshot.publisher({ leases: [testLease(true, lostAt)] });
    await expect(publisher.runCycle()).rejects.toThrow(LeaseLostError);
    const checkpoints = (await registry.checkpoints()).length - 1;
    expect({ entries: registry.size - size, checkpoints }).toEqual(made);
    expect(location()).toBe(before);
  });

  it('prevents an older snapshot from replacing a newer snapshot after the directory lock was lost', async () => {
    let newer = '';
    const sleeper = snapshot.publisher({
      // This publisher pauses in its cycle until its lock is stale; a second publisher takes over and publishes.
      step: async (path, write) => {
        await write();
        if (path !== 'checkpoint') return;
        rmSync(join(snapshot.directory, '.lock'), { recursive: true });
        snapshot.registry.verify();
        expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'published' });
        newer = location();
      },
    });
    await expect(sleeper.runCycle()).rejects.toThrow(LeaseLostError);
    expect(newer).not.toBe('');
    expect(location()).toBe(newer);
    expect(await snapshot.registry.checkpoints()).toHaveLength(2);
    await snapshot.published();
  });

  it.each([
    ['the same checkpoint', 0],
    ['a larger checkpoint', 1],
  ])('does not allow a snapshot when another publisher commits %s first', async (_, more) => {
    const { registry } = snapshot;
    const insert = registry.insertCheckpoint.bind(registry);
    registry.insertCheckpoint = async (checkpoint) => {
      await insert({ ...checkpoint, treeSize: checkpoint.treeSize + more });
      return insert(checkpoint);
    };
    await expect(snapshot.publisher().runCycle()).rejects.toThrow(LeaseLostError);
    expect(await registry.checkpoints()).toHaveLength(1);
    expect(existsSync(join(snapshot.directory, 'lookup/snapshot'))).toBe(false);
  });
});

it('publisher whose directory is not writable > releases its leases to a standby that can write', async () => {
  // This file prevents the write of tiles, but not of the lock file.
  writeFileSync(join(snapshot.directory, 'tile'), 'a file where a folder belongs');
  let holder: Lease | null = null;
  const exclusiveLease = (): Lease => {
    const lease: Lease = {
      take: () => {
        holder ??= lease;
        return lease.held();
      },
      held: () => Promise.resolve(holder === lease),
      release: () => {
        if (holder === lease) holder = null;
        return Promise.resolve();
      },
    };
    return lease;
  };
  const broken = snapshot.publisher({ leases: [exclusiveLease()] });
  await expect(broken.runCycle()).rejects.toThrow('ENOTDIR');
  expect(broken.isLeader()).toBe(true);
  const directory = join(snapshot.directory, 'of-the-standby');
  const standby = snapshot.publisher({ leases: [exclusiveLease()], directory });
  expect(await standby.runCycle()).toEqual({ outcome: 'standby' });
  const stopping = new AbortController();
  const lines: string[] = [];
  const log = pino({}, { write: (line: string) => void lines.push(line) });
  const runs = [broken, standby].map((one) => runPublisher(one, { signal: stopping.signal, log }));
  const published = (): boolean => existsSync(join(directory, 'lookup/snapshot'));
  await expect.poll(published, { timeout: 20_000 }).toBe(true);
  stopping.abort();
  await Promise.all(runs);
  expect(lines).toContainEqual(expect.stringMatching(/ENOTDIR.*releases its leases/));
});
