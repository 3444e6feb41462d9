import { toHex } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFileSchema } from '#protocol/snapshot/keys';
import { segmentPath } from '#protocol/snapshot/manifest';
import { nativeSha256 } from '#runtime/crypto';
import type { PublishedContext } from './context.js';
import { difference } from './difference.js';
import type { PublicLog } from './log.js';

/** The AEP keys that are served are those of the log, with the positions that it gives them. */
export async function readKeysFile(ctx: PublishedContext, log: PublicLog): Promise<void> {
  const { manifest } = ctx.opened;
  const path = segmentPath(manifest.keys.sha256);
  const bytes = await ctx.files.read(path);
  if (bytes === null) {
    ctx.findings.add('segment_missing', path, 'the keys file');
    return;
  }
  if (toHex(nativeSha256(bytes)) !== manifest.keys.sha256) {
    ctx.findings.add('segment_altered', path, 'a file of that SHA-256');
    return;
  }
  const entries = log.keys.flatMap(
    ({ leafIndex, entry }): { leafIndex: number; entry: KeyEntry }[] =>
      entry.type === 'key' && leafIndex < manifest.tree_size ? [{ leafIndex, entry }] : [],
  );
  const differs = difference(aepKeys(nativeSha256, entries), servedKeys(bytes));
  if (differs !== null) ctx.findings.add('keys_file_differs', path, differs);
}

function servedKeys(bytes: Uint8Array): unknown {
  try {
    return keysFileSchema.parse(parseStrict(bytes)).aep;
  } catch {
    return null;
  }
}
