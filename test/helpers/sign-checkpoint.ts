import { generateKeyPairSync, sign } from 'node:crypto';
import { formatCheckpoint } from '#protocol/checkpoint';
import { formatVkey, keyId, signNote } from '#protocol/note';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto';
import { insertCheckpoint, latestCheckpoint } from '#sql/checkpoints';
import { readTile, treeSize } from '#sql/log';
import type { TestDatabase } from './database.js';

const ORIGIN = 'test.example/log';
const { privateKey, publicKey } = generateKeyPairSync('ed25519');
const PUBLIC = publicKey.export({ format: 'der', type: 'spki' }).subarray(-32);

export const TEST_LOG_VKEY = formatVkey(nativeSha256, ORIGIN, PUBLIC);

/** Signs the log as it is now, as the publisher does; nothing when that is done already. */
export async function signCheckpoint(db: TestDatabase): Promise<void> {
  const size = await treeSize(db.sql);
  const previous = (await latestCheckpoint(db.sql))?.treeSize ?? 0;
  if (size === previous) return;
  const root = await rootFromTiles(nativeSha256, size, async (level, index) => {
    const tile = await readTile(db.sql, level, index);
    if (tile === null) throw new Error(`no tile ${level}/${index}`);
    return tile;
  });
  const note = signNote(formatCheckpoint({ origin: ORIGIN, size, root }), {
    name: ORIGIN,
    keyHash: keyId(nativeSha256, ORIGIN, PUBLIC),
    sign: (message) => sign(null, message, privateKey),
  });
  const stored = await insertCheckpoint(db.as('svc_publisher'), {
    treeSize: size,
    root,
    note,
    previous,
  });
  if (!stored) throw new Error(`the checkpoint at ${size} was not stored`);
}
