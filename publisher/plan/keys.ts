import { equalBytes, toHex } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { parseStrict } from '#protocol/json';
import { leafHash } from '#protocol/merkle';
import { formatVkey } from '#protocol/note';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFile, keysFileSchema, type KeysFile } from '#protocol/snapshot/keys';
import { segmentPath, type Manifest } from '#protocol/snapshot/manifest';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { voidedRanges, type VoidedRange } from '#protocol/snapshot/voided';
import { nativeSha256 } from '#runtime/crypto/node';
import type { CycleContext } from '../context.js';
import type { Published } from '../store/directory.js';
import type { PublishedFile } from '../store/writer.js';
import { FatalPublishError } from '../errors.js';

/** The key list of a snapshot and its source entries. */
export interface PublishedKeys {
  /** Bodies of the key entries, by leaf index. */
  entries: ReadonlyMap<number, Uint8Array>;
  file: PublishedFile;
  pin: Manifest['keys'];
  /** Leaf ranges that readers void. */
  ranges: readonly VoidedRange[];
}

/**
 * The key list at a tree size, with every compromise in the log. A compromise beyond that size only
 * withdraws validity, so it need not wait for the verifier. Readers void proofs by this list, so no
 * published voided range may be lost.
 *
 * @throws FatalPublishError tree_mismatch when the registry lost one, or altered an entry beyond `size`
 * @throws ProtocolError malformed_entry
 */
export async function keysAt(
  ctx: CycleContext,
  published: Published | null,
  size: number,
): Promise<PublishedKeys> {
  const rows = await ctx.registry.keyEntries();
  const entries: { leafIndex: number; entry: KeyEntry }[] = [];
  for (const { leafIndex, body } of rows) {
    if (leafIndex >= size) await requireLeaf(ctx, leafIndex, body);
    const entry = parseEntry(body);
    if (entry.type !== 'key') continue;
    if (leafIndex < size || entry.change === 'compromise') entries.push({ leafIndex, entry });
  }
  const aep = aepKeys(nativeSha256, entries);
  const ranges = voidedRanges({ aep });
  for (const { keyId, from } of await publishedRanges(ctx, published)) {
    if (ranges.some((range) => range.keyId === keyId && range.from <= from)) continue;
    throw new FatalPublishError(
      'tree_mismatch',
      `The registry contradicts itself: the published key list voids key ${keyId} from leaf ${from} on, but its key entries lack that compromise.  ` +
        'Restore the database from a backup that holds every published leaf, and start the publisher again. ' +
        'If the entry is lost for good, run aep-key compromise for that key again, from that leaf on.',
    );
  }
  const bytes = keysFile({ aep, ...retiredKeys(ctx) });
  const name = toHex(nativeSha256(bytes));
  return {
    entries: new Map(rows.map(({ leafIndex, body }) => [leafIndex, body])),
    file: { path: segmentPath(name), bytes, replaces: false },
    pin: { sha256: name, bytes: bytes.length },
    ranges,
  };
}

/** No verified tree covers the leaf yet, so the row is compared with the hash that was appended. */
async function requireLeaf(ctx: CycleContext, leafIndex: number, body: Uint8Array): Promise<void> {
  const hash = await ctx.registry.leafHash(leafIndex);
  if (hash !== null && equalBytes(hash, leafHash(nativeSha256, body))) return;
  throw new FatalPublishError(
    'tree_mismatch',
    `The registry contradicts itself: the key entry at leaf ${leafIndex} differs from the appended hash. ` +
      'Restore its row, or the tile that holds its hash, from a backup, and start the publisher again.',
  );
}

async function publishedRanges(ctx: CycleContext, published: Published | null) {
  if (published === null) return [];
  const { sha256: name } = published.opened.manifest.keys;
  const bytes = await ctx.directory.segment(name);
  if (toHex(nativeSha256(bytes)) !== name) {
    throw ctx.directory.damaged(`the keys file ${segmentPath(name)} is corrupt`);
  }
  return voidedRanges(keysFileSchema.parse(parseStrict(bytes)));
}

/** Omitted while empty, because older readers reject the member. */
function retiredKeys({ trust }: CycleContext): Pick<KeysFile, 'retired'> {
  const vkeys = ([, ...retired]: PinnedKeys): string[] =>
    retired.map(({ name, publicKey }) => formatVkey(nativeSha256, name, publicKey));
  const retired = { log: vkeys(trust.log), snapshot: vkeys(trust.snapshot) };
  return retired.log.length + retired.snapshot.length === 0 ? {} : { retired };
}
