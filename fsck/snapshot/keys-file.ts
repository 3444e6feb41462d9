import { toHex } from '#protocol/bytes';
import { parseStrict } from '#protocol/json';
import type { KeyedEntry } from '#protocol/keys';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFileSchema, type AepKey } from '#protocol/snapshot/keys';
import { segmentPath } from '#protocol/snapshot/manifest';
import { nativeSha256 } from '#runtime/crypto/node';
import type { PublishedContext } from './context.js';
import { difference } from './expected-body.js';
import type { PublicLog } from './log.js';

/**
 * Checks that the served AEP keys equal those of the log. Only `compromised_from` may be ahead of the
 * manifest's tree.
 *
 * @param appended the key entries of the registry, read after the manifest; null when only the
 *   snapshot is checked
 */
export async function readKeysFile(
  ctx: PublishedContext,
  log: PublicLog,
  appended: readonly KeyedEntry[] | null,
): Promise<void> {
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
  const served = servedKeys(bytes);
  const expected = aepKeys(nativeSha256, entries).map((key, i) => {
    const from = served?.[i]?.compromised_from ?? null;
    if (from === null || from >= (key.compromised_from ?? Infinity)) return key;
    if (appended === null) {
      const entry = `the entry that compromises key ${key.kid} from leaf ${from} on`;
      ctx.findings.skip(`${entry}: the manifest's tree does not have it`);
    } else if (!compromises(appended, key.kid, from)) return key;
    return { ...key, compromised_from: from };
  });
  const differs = difference(expected, served);
  if (differs !== null) ctx.findings.add('keys_file_differs', path, differs);
}

function compromises(appended: readonly KeyedEntry[], keyId: string, from: number): boolean {
  return appended.some(
    ({ entry }) => entry.type === 'key' && entry.key_id === keyId && entry.from_index === from,
  );
}

function servedKeys(bytes: Uint8Array): AepKey[] | null {
  try {
    return keysFileSchema.parse(parseStrict(bytes)).aep;
  } catch {
    return null;
  }
}
