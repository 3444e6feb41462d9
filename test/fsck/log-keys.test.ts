import { join } from 'node:path';
import { expect, it } from 'vitest';
import { formatCheckpoint } from '#protocol/checkpoint';
import { formatVkey, noteSigner, parseVkey, signNote } from '#protocol/note';
import { logKeysOf } from '#protocol/state/log-keys';
import { nativeSha256 } from '#runtime/crypto/node';
import { appendLogKeyChange, logStateKeys } from '#sql/lifecycle/log-keys';
import { insertCheckpoint, latestCheckpoint } from '#sql/log/log';
import { pinning } from '../fixtures/pins.js';
import { testFolder } from '../fixtures/test-folder.js';
import { checked } from '../fixtures/damaged-copies.js';
import { ORIGIN, testKey, type TestKey } from '../fixtures/snapshot.js';
import { sqlPublisher } from '../fixtures/sql-publisher.js';
import { useRegistry } from '../fixtures/use-registry.js';

const { db, registry } = useRegistry('test');

it('fsck > accepts log keys that the log activates, but a retired key only up to its bound', async () => {
  const home = await testFolder();
  const [former, next] = [testKey(), testKey()];
  const vkeyOf = ({ publicKey }: TestKey): string => formatVkey(nativeSha256, ORIGIN, publicKey);
  const env = {
    DATABASE_URL: db.urlFor('svc_fsck'),
    SNAPSHOT_DIR: join(home, 'public'),
    DATA_DIR: home,
    ...pinning(vkeyOf(former)),
  };
  const corrupt = async () => (await checked(env, '--restart')).corrupt;
  const publish = async (logKey: TestKey): Promise<void> => {
    await registry.admitAll([registry.item()]);
    await registry.reportAll();
    const keys = await logStateKeys(registry.admin, ORIGIN);
    const logged = logKeysOf(nativeSha256, ORIGIN, keys.values());
    const sql = db.as('svc_publisher', 1);
    const publisher = sqlPublisher(sql, { directory: env.SNAPSHOT_DIR, logKey, logged });
    const report = await publisher.runCycle().finally(() => publisher.close());
    expect(report).toMatchObject({ outcome: 'published' });
  };
  const change = (key: TestKey, what: 'activate' | 'retire') =>
    appendLogKeyChange(registry.admin, parseVkey(vkeyOf(key)), what);

  await publish(former);
  await expect(change(next, 'activate')).rejects.toThrow('activate that key first');
  await change(former, 'activate');
  await expect(publish(next)).rejects.toThrow('No checkpoint by a former log key covers');
  await change(next, 'activate');
  await publish(former);
  await publish(next);
  const { treeSize: before } = (await latestCheckpoint(registry.admin))!;
  expect(await change(former, 'retire')).toMatchObject({ fromSize: expect.any(Number) as number });
  await publish(next);
  expect(await corrupt()).toEqual({});

  // A thief who has the retired key signs the next tree.
  const { treeSize, root } = (await latestCheckpoint(registry.admin))!;
  const signed = formatCheckpoint({ origin: ORIGIN, size: treeSize, root });
  const note = signNote(signed, noteSigner(nativeSha256, ORIGIN, former));
  await db.sql`alter table svc.checkpoint disable trigger user`;
  await db.sql`delete from svc.checkpoint where tree_size = ${treeSize}`;
  await db.sql`alter table svc.checkpoint enable trigger user`;
  await insertCheckpoint(db.sql, { treeSize, root, note, previous: before });
  expect(await corrupt()).toMatchObject({ checkpoint_unverifiable: 1 });
});
