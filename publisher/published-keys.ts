import { toHex } from '#protocol/bytes';
import { parseEntry } from '#protocol/entries';
import { parseStrict } from '#protocol/json';
import { formatVkey } from '#protocol/note';
import type { KeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFile, keysFileSchema, type KeysFile } from '#protocol/snapshot/keys';
import { segmentPath, type Manifest } from '#protocol/snapshot/manifest';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { voidedRanges, type VoidedRange } from '#protocol/snapshot/voided';
import type { TickContext } from './context.js';
import type { Published } from './directory.js';
import type { PublishedFile } from './publish.js';
import { PublisherStopped } from './stopped.js';

/** The list of keys of a snapshot, and the key entries that it was made of. */
export interface PublishedKeys {
  /** Bodies of the key entries, by leaf index. */
  entries: ReadonlyMap<number, Uint8Array>;
  file: PublishedFile;
  pin: Manifest['keys'];
  /** What readers of the list void. */
  ranges: readonly VoidedRange[];
}

/**
 * The list of keys at a tree size. Readers void by it what a compromised key signed, so no voided
 * range that is published may be lost.
 *
 * @throws PublisherStopped tree_mismatch when the registry lost one
 */
export async function keysAt(
  ctx: TickContext,
  published: Published | null,
  size: number,
): Promise<PublishedKeys> {
  const rows = (await ctx.registry.keyEntries()).filter(({ leafIndex }) => leafIndex < size);
  const entries = rows
    .map(({ leafIndex, body }) => ({ leafIndex, entry: parseEntry(body) }))
    .filter((row): row is { leafIndex: number; entry: KeyEntry } => row.entry.type === 'key');
  const aep = aepKeys(ctx.sha256, entries);
  const ranges = voidedRanges({ aep });
  for (const { keyId, from } of await publishedRanges(ctx, published)) {
    if (ranges.some((range) => range.keyId === keyId && range.from <= from)) continue;
    throw new PublisherStopped(
      'tree_mismatch',
      `The registry contradicts itself: by what is published key ${keyId} is compromised from leaf ${from} on, and its key entries do not say so. ` +
        'Restore the database from a backup that holds every published leaf, and start the publisher again.',
    );
  }
  const bytes = keysFile({ aep, ...retiredKeys(ctx) });
  const name = toHex(ctx.sha256(bytes));
  return {
    entries: new Map(rows.map(({ leafIndex, body }) => [leafIndex, body])),
    file: { path: segmentPath(name), bytes, replaces: false },
    pin: { sha256: name, bytes: bytes.length },
    ranges,
  };
}

async function publishedRanges(ctx: TickContext, published: Published | null) {
  if (published === null) return [];
  const { sha256: name } = published.opened.manifest.keys;
  const bytes = await ctx.directory.segment(name);
  if (toHex(ctx.sha256(bytes)) !== name) {
    throw ctx.directory.damaged(`the keys file ${segmentPath(name)} is corrupt`);
  }
  return voidedRanges(keysFileSchema.parse(parseStrict(bytes)));
}

/** Left out while there are none, so that older readers know the file. */
function retiredKeys({ trust, sha256 }: TickContext): Pick<KeysFile, 'retired'> {
  const vkeys = ([, ...retired]: PinnedKeys): string[] =>
    retired.map(({ name, publicKey }) => formatVkey(sha256, name, publicKey));
  const retired = { log: vkeys(trust.log), snapshot: vkeys(trust.snapshot) };
  return retired.log.length + retired.snapshot.length === 0 ? {} : { retired };
}
