import { generateKeyPairSync, sign } from 'node:crypto';
import { formatCheckpoint } from '#protocol/checkpoint';
import { formatVkey, keyId, signNote } from '#protocol/note';
import { rootFromTiles } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { insertCheckpoint, latestCheckpoint } from '#sql/log/checkpoints';
import { readTile, treeSize } from '#sql/log/log';
import type { TestDatabase } from './database.js';

/** A log key of its own, and a publisher that only signs checkpoints. */
export interface TestLog {
  origin: string;
  publicKey: Uint8Array;
  vkey: string;
  /** Signs the log as it is now; does nothing when that is signed already. */
  publish(): Promise<void>;
}

export function testLog(db: TestDatabase, origin = 'test.example/log'): TestLog {
  const { privateKey, publicKey: key } = generateKeyPairSync('ed25519');
  const publicKey = new Uint8Array(key.export({ format: 'der', type: 'spki' }).subarray(-32));
  const publisher = db.as('svc_publisher');
  return {
    origin,
    publicKey,
    vkey: formatVkey(nativeSha256, origin, publicKey),
    publish: async () => {
      const size = await treeSize(db.sql);
      const previous = (await latestCheckpoint(db.sql))?.treeSize ?? 0;
      if (size === previous) return;
      const root = await rootFromTiles(
        nativeSha256,
        size,
        async (level, index) => (await readTile(db.sql, level, index)) ?? new Uint8Array(),
      );
      const note = signNote(formatCheckpoint({ origin, size, root }), {
        name: origin,
        keyHash: keyId(nativeSha256, origin, publicKey),
        sign: (message) => sign(null, message, privateKey),
      });
      if (!(await insertCheckpoint(publisher, { treeSize: size, root, note, previous }))) {
        throw new Error(`the checkpoint at ${size} was not stored`);
      }
    },
  };
}
