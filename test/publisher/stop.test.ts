import { existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { withFlippedBit } from '../fixtures/leaves.js';
import { entryOf, ORIGIN } from '../fixtures/snapshot.js';
import { fatalErrorOf } from '../fixtures/sql-publisher.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();
beforeEach(() => {
  snapshot.grow(400);
});

const file = (path: string): string => join(snapshot.directory, path);
const location = (): string | null =>
  existsSync(file('lookup/snapshot')) ? readFileSync(file('lookup/snapshot'), 'utf8') : null;
const removeLookup = (): void => rmSync(file('lookup'), { recursive: true });

/** Replaces the log from leaf 300 on. */
function diverge(): void {
  snapshot.registry.truncate(300);
  for (let i = 0; i < 250; i++) {
    snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + 10_000 + i });
  }
  snapshot.registry.verify();
}

it('publisher > continues from TRUSTED_CHECKPOINT', async () => {
  const first = snapshot.publisher();
  await first.runCycle();
  const trustedCheckpoint = readFileSync(file('checkpoint'), 'utf8');
  await first.close();
  snapshot.grow(10);
  const publisher = snapshot.publisher({ trustedCheckpoint });
  expect(await publisher.runCycle()).toMatchObject({ outcome: 'published', treeSize: 415 });
});

it('publisher > warns of a copy of the database while the snapshot of a published log is empty', async () => {
  const lines: string[] = [];
  const log = pino({ level: 'warn' }, { write: (line: string) => void lines.push(line) });
  await snapshot.publishOnce({ log });
  expect(lines).toEqual([]);
  rmSync(snapshot.directory, { recursive: true });
  await snapshot.publishOnce({ log });
  await snapshot.publishOnce({ log });
  expect(lines).toEqual([expect.stringContaining('if the database is a copy')]);
});

describe('publisher stops with an error that names the next step', () => {
  it.each<[string, () => unknown, code: string, message: RegExp]>([
    [
      'the database was restored to an older state',
      () => snapshot.registry.truncate(300),
      'database_behind',
      /300.*404.*LOG_ORIGIN/s,
    ],
    ['the database was restored and then diverged', diverge, 'log_forked', /./],
    [
      'only the signed checkpoint in the database covers the lost leaves',
      () => {
        snapshot.registry.truncate(300, 'kept');
        removeLookup();
        rmSync(file('checkpoint'));
      },
      'database_behind',
      /the last signed checkpoint/,
    ],
    [
      'only the checkpoint file covers the lost leaves',
      () => {
        snapshot.registry.truncate(300);
        removeLookup();
      },
      'database_behind',
      /the published checkpoint/,
    ],
    [
      'the location document in its directory was changed',
      () =>
        writeFileSync(
          file('lookup/snapshot'),
          location()!.replace('"max_merge_delay":60', '"max_merge_delay":61'),
        ),
      'snapshot_unverifiable',
      /SNAPSHOT_DIR/,
    ],
    [
      'a published tile would have to change',
      () => {
        const tile = file('tile/0/000');
        writeFileSync(tile, withFlippedBit(readFileSync(tile), 8 * 100));
        removeLookup();
      },
      'published_file_differs',
      /tile\/0\/000/,
    ],
  ])('when %s', async (_, damage, code, message) => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    damage();
    const before = location();
    expect(await fatalErrorOf(publisher.runCycle())).toMatchObject({
      code,
      message: expect.stringMatching(message) as string,
    });
    expect(location()).toBe(before);
  });

  it.each<[string, () => unknown]>([
    ['a tile at the right edge differs', () => snapshot.registry.corruptTile(0, 1, 5)],
    ['an inner tile differs', () => snapshot.registry.corruptTile(0, 0, 5)],
    ['a tile above the leaves differs', () => snapshot.registry.corruptTile(1, 0, 5)],
    ['a row differs from the verified leaf', () => snapshot.registry.changeRow(17, false)],
    [
      'row and tile of a leaf were both changed, and match',
      () => snapshot.registry.changeRow(17, true),
    ],
    ['a leaf is missing from the registry', () => snapshot.registry.loseRow(17)],
  ])('when published leaves and the database disagree: %s', async (_, damage) => {
    damage();
    expect((await fatalErrorOf(snapshot.publisher().runCycle())).code).toBe('tree_mismatch');
    expect(location()).toBeNull();
    expect(existsSync(file('tile'))).toBe(false);
    expect(await snapshot.registry.checkpoints()).toHaveLength(0);
  });

  it('when the last verdict entry does not count', async () => {
    const { registry } = snapshot;
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const before = location();
    // A replay of the first verdict entry.
    const [first] = registry.all.filter(
      (leaf) => leaf.kind === 'other' && Buffer.from(leaf.bytes).includes('"type":"verdict"'),
    );
    registry.addEntry(entryOf(first!));
    expect((await fatalErrorOf(publisher.runCycle())).code).toBe('tree_mismatch');
    expect(location()).toBe(before);
  });

  it('when TRUSTED_CHECKPOINT covers leaves that the database lacks', async () => {
    const publisher = snapshot.publisher();
    await publisher.runCycle();
    const trustedCheckpoint = readFileSync(file('checkpoint'), 'utf8');
    await publisher.close();
    // Database and directory were rolled back together, so they agree with each other.
    rmSync(snapshot.directory, { recursive: true });
    snapshot.registry.truncate(300);
    const second = snapshot.publisher({ trustedCheckpoint });
    const { code, message } = await fatalErrorOf(second.runCycle());
    expect(code).toBe('database_behind');
    expect(message).toContain('TRUSTED_CHECKPOINT');
    diverge();
    expect((await fatalErrorOf(second.runCycle())).code).toBe('log_forked');
    expect(await snapshot.registry.checkpoints()).toHaveLength(0);
    expect(existsSync(file('checkpoint'))).toBe(false);
    const other = () => snapshot.publisher({ trustedCheckpoint, origin: 'other.example/log' });
    expect(other).toThrow(/TRUSTED_CHECKPOINT.*log-key activate/s);
  });

  it('when its log is retired', async () => {
    snapshot.registry.endLog(ORIGIN);
    const { code, message } = await fatalErrorOf(snapshot.publisher().runCycle());
    expect(code).toBe('log_ended');
    expect(message).toContain('LOG_ORIGIN');
    await snapshot.publisher({ origin: 'test.example/next' }).runCycle();
  });

  it('when the directory or the database belongs to another log', async () => {
    await snapshot.publishOnce();
    const elsewhere = snapshot.publisher({ origin: 'other.example/log' });
    expect((await fatalErrorOf(elsewhere.runCycle())).code).toBe('checkpoint_unverifiable');
    await elsewhere.close();
    removeLookup();
    rmSync(file('checkpoint'));
    const other = snapshot.publisher({ origin: 'other.example/log' });
    const { code, message } = await fatalErrorOf(other.runCycle());
    expect(code).toBe('checkpoint_unverifiable');
    expect(message).toContain('LOG_KEY_FILE');
  });
});

it('restarted publisher > continues past a key entry whose row it cannot find', async () => {
  const { registry } = snapshot;
  registry.addKeyEntry('compromise', 2);
  registry.verify();
  await snapshot.publishOnce();
  // The column by which key entries are found is not part of the log.
  const all = registry.keyEntries.bind(registry);
  registry.keyEntries = async () =>
    (await all()).filter(({ body }) => !Buffer.from(body).includes('compromise'));
  const id = registry.addProof();
  registry.verify();
  await snapshot.publisher().runCycle();
  expect((await snapshot.published()).status(id)).toBe('BACKEND_LOOKUP_REQUIRED');
});
