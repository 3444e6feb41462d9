import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { LeaseLostError } from '#publisher/errors';
import type { Lease } from '#publisher/registry/lease';
import type { Publisher } from '#publisher/publisher';
import { runPublisher } from '#publisher/run';
import { logger } from '#runtime/process/log';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
beforeEach(() => {
  snapshot.grow(3);
});

const location = (): string => readFileSync(join(snapshot.directory, 'lookup/snapshot'), 'utf8');

class TestClaim implements Lease {
  free = true;
  lostAt = Infinity;
  checks = 0;
  take(): Promise<boolean> {
    return Promise.resolve(this.free);
  }
  held(): Promise<boolean> {
    return Promise.resolve(++this.checks < this.lostAt);
  }
  release(): Promise<void> {
    return Promise.resolve();
  }
}

describe('publisher lease', () => {
  it('releases the directory when another publisher holds the lease on the registry', async () => {
    const claim = new TestClaim();
    claim.free = false;
    expect(await snapshot.publisher({ leases: [claim] }).runCycle()).toEqual({
      outcome: 'standby',
    });
    expect(await snapshot.publisher().runCycle()).toMatchObject({ outcome: 'published' });
  });

  it('prevents every entry and signature when it is lost before write 1', async () => {
    const claim = new TestClaim();
    claim.lostAt = 1;
    await expect(snapshot.publisher({ leases: [claim] }).runCycle()).rejects.toThrow(
      LeaseLostError,
    );
    expect(snapshot.registry.checkpoints).toHaveLength(0);
    expect(await snapshot.registry.latestEntry('snapshot', 100)).toBeNull();
    expect(existsSync(join(snapshot.directory, 'lookup/snapshot'))).toBe(false);
  });

  it.each([2, 3])('prevents a new snapshot when it is lost before write %i', async (lostAt) => {
    await snapshot.publishOnce();
    const before = location();
    const claim = new TestClaim();
    claim.lostAt = lostAt;
    snapshot.registry.verify();
    await expect(snapshot.publisher({ leases: [claim] }).runCycle()).rejects.toThrow(
      LeaseLostError,
    );
    expect(location()).toBe(before);
  });

  it('prevents an older snapshot from replacing a newer one after the directory lock was lost', async () => {
    let newer = '';
    const sleeper = snapshot.publisher({
      // Pauses in its cycle until its lock is stale; another publisher takes over and publishes.
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
    expect(snapshot.registry.checkpoints).toHaveLength(2);
    await snapshot.published();
  });

  it('does not allow a snapshot when another publisher commits the checkpoint first', async () => {
    const { registry } = snapshot;
    const insert = registry.insertCheckpoint.bind(registry);
    registry.insertCheckpoint = async (checkpoint) => {
      await insert(checkpoint);
      return insert(checkpoint);
    };
    await expect(snapshot.publisher().runCycle()).rejects.toThrow(LeaseLostError);
    expect(existsSync(join(snapshot.directory, 'lookup/snapshot'))).toBe(false);
  });
});

/** Leases on one registry, of which only one can be held at a time. */
class TestRegistryLock {
  holder: Lease | null = null;

  claim(): Lease {
    const claim: Lease = {
      take: () => {
        this.holder ??= claim;
        return claim.held();
      },
      held: () => Promise.resolve(this.holder === claim),
      release: () => {
        if (this.holder === claim) this.holder = null;
        return Promise.resolve();
      },
    };
    return claim;
  }
}

/** Uses the real clock. In the first directory, only the lock file can be written. */
describe('publisher whose directory is not writable', () => {
  let stopping: AbortController;
  let runs: Promise<void>[];
  let lines: string[];
  let obstacle: string;
  beforeEach(() => {
    stopping = new AbortController();
    runs = [];
    lines = [];
    obstacle = join(snapshot.directory, 'tile');
    writeFileSync(obstacle, 'a file where a folder belongs');
  });
  const run = (publisher: Publisher): void => {
    const log = logger('publisher', 'silent');
    const note = (fields: { err?: Error } | string, message = '') =>
      void lines.push(
        typeof fields === 'string' ? fields : `${message}: ${fields.err?.message ?? ''}`,
      );
    Object.assign(log, { info: note, error: note });
    runs.push(runPublisher(publisher, { signal: stopping.signal, log }));
  };
  const stop = async (): Promise<void> => {
    stopping.abort();
    await Promise.all(runs);
  };

  it('releases its leases to a standby that can write', async () => {
    const lock = new TestRegistryLock();
    const broken = snapshot.publisher({ leases: [lock.claim()] });
    await expect(broken.runCycle()).rejects.toThrow('ENOTDIR');
    expect(broken.isLeader()).toBe(true);
    const directory = join(snapshot.directory, 'of-the-standby');
    const standby = snapshot.publisher({ leases: [lock.claim()], directory });
    expect(await standby.runCycle()).toEqual({ outcome: 'standby' });
    run(broken);
    run(standby);
    const published = (): boolean => existsSync(join(directory, 'lookup/snapshot'));
    await expect.poll(published, { timeout: 20_000 }).toBe(true);
    await stop();
    expect(lines).toContainEqual(expect.stringMatching(/releases its leases.*ENOTDIR/));
  }, 30_000);
});
