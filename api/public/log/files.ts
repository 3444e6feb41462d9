import { equalBytes, fromBase64Url, utf8 } from '#protocol/bytes';
import { type Checkpoint, formatTlogProof } from '#protocol/checkpoint';
import { parseEntry } from '#protocol/entries';
import { publicJwk, type PublicJwk } from '#protocol/keys';
import { activationIn, MAP_KINDS } from '#protocol/map/nodes';
import { HASH_BYTES, leafHash, verifyInclusion } from '#protocol/merkle';
import { formatVkey, type Vkey } from '#protocol/note';
import { KEYS_SCHEMA, type PublicKeys } from '#protocol/snapshot/keys';
import { malformed } from '#protocol/snapshot/location';
import { decodeAepKey } from '#protocol/state/record';
import {
  decodeEntryBundle,
  hashAt,
  inclusionFromTiles,
  TILE_WIDTH,
  tileWidth,
} from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import type { Exchange, Handler, PublicContext } from '../operation.js';
import {
  CACHE_IMMUTABLE,
  CACHE_NEVER,
  CACHE_VERDICT,
  JSON_TYPE,
  send,
  type Answer,
} from '../http/answer.js';
import { Problem } from '../http/problem.js';
import { whenFetched, type Snapshot } from '../snapshot/snapshot.js';
import { loadedSnapshot } from '../snapshot/poller.js';
import { readEntries, readTile, tileReader } from '../snapshot/source.js';

const TEXT_TYPE = 'text/plain; charset=utf-8';

type Read = (
  ctx: PublicContext,
  snapshot: Snapshot,
  last: string,
) => Promise<Pick<Answer, 'type' | 'body'> & Partial<Answer>>;

/** Serves data of the log as of the served snapshot, even after the snapshot has expired. */
const ofSnapshot =
  (read: Read): Handler =>
  async (exchange, last) => {
    const { ctx } = exchange;
    const snapshot = loadedSnapshot(ctx);
    const answer = await read(ctx, snapshot, last);
    const cached = { cache: CACHE_VERDICT, outlivesSnapshot: true };
    send(exchange, snapshot, { status: 200, ...cached, ...answer });
  };

/** GET /log/checkpoint: the newest checkpoint that witnesses cosigned, else the snapshot's. */
export const getCheckpoint = ofSnapshot(async (ctx, snapshot) => {
  const { note } = await ctx.checkpoints.newest(snapshot);
  return { type: TEXT_TYPE, body: utf8(note) };
});

/**
 * `tile/<level or entries>/<index in groups of three>[.p/<width>]` (C2SP tlog-tiles). A leading zero
 * group would give the same tile a second URL.
 */
const TILE =
  /^(entries|0|[1-9][0-9]?)\/(?!x000)((?:x[0-9]{3}\/)*[0-9]{3})(?:\.p\/([1-9][0-9]{0,2}))?$/;

/** GET /log/tile/…: hash tiles and entry bundles, immutable once the served checkpoint covers them. */
export async function getTile(exchange: Exchange, path: string): Promise<void> {
  const { ctx } = exchange;
  const [, named, groups = '', partial] = TILE.exec(path) ?? [];
  const level = named === 'entries' ? null : Number(named);
  const index = Number(groups.replaceAll(/[x/]/g, ''));
  const width = Number(partial ?? TILE_WIDTH);
  const isCanonicalWidth = partial === undefined || width < TILE_WIDTH;
  if (groups === '' || !isCanonicalWidth || !Number.isSafeInteger(index) || Number(level) > 63) {
    throw noSuchFile();
  }
  const { current } = ctx.poller;
  const size = current?.opened.checkpoint.size ?? 0;
  const bytes =
    level === null
      ? await readEntries(ctx.source, index, width, size)
      : await readTile(ctx.source, level, index, width, size);
  if (bytes === null) {
    // Tiles of the served tree were published and never disappear: report a read error, not 404.
    if (width === tileWidth(level ?? 0, index, size)) throw malformed(`${path} cannot be read`);
    throw noSuchFile();
  }
  if (level !== null && bytes.length !== width * HASH_BYTES) {
    throw malformed(`${path} is not ${width} hashes long`);
  }
  // A publisher may replace a tile that its checkpoints do not cover, if a failover loses the leaves.
  const isCovered = width <= tileWidth(level ?? 0, index, size);
  send(exchange, current, {
    status: 200,
    type: 'application/octet-stream',
    cache: isCovered ? CACHE_IMMUTABLE : CACHE_NEVER,
    body: bytes,
  });
}

/** GET /log/entry/{leaf_index}: one entry, verified against the checkpoint before it is sent. */
export const getEntry = ofSnapshot(async (ctx, snapshot, leafIndex) => ({
  type: JSON_TYPE,
  cache: CACHE_IMMUTABLE,
  body: await entryAt(ctx, snapshot, leafIn(snapshot, leafIndex)),
}));

/** Reads an entry and verifies its inclusion under the checkpoint of the snapshot. */
export async function entryAt(
  ctx: PublicContext,
  snapshot: Snapshot,
  index: number,
): Promise<Uint8Array> {
  const entry = await readEntryAt(ctx, snapshot, index);
  const { checkpoint } = snapshot.opened;
  await inclusionPathOf(ctx, checkpoint, index, leafHash(nativeSha256, entry));
  return entry;
}

async function readEntryAt(
  ctx: PublicContext,
  snapshot: Snapshot,
  index: number,
): Promise<Uint8Array> {
  const { size } = snapshot.opened.checkpoint;
  const bundleIndex = Math.floor(index / TILE_WIDTH);
  const bundle = await readEntries(ctx.source, bundleIndex, tileWidth(0, bundleIndex, size));
  const entry = bundle === null ? undefined : decodeEntryBundle(bundle)[index % TILE_WIDTH];
  if (entry === undefined) throw malformed(`the bundle of leaf ${index} cannot be read`);
  return entry;
}

/** GET /log/proof/{leaf_index}: inclusion under the served checkpoint, as a C2SP tlog-proof. */
export const getInclusionProof = ofSnapshot(async (ctx, snapshot, leafIndex) => {
  const index = leafIn(snapshot, leafIndex);
  return {
    type: TEXT_TYPE,
    body: utf8(await tlogProofAt(ctx, snapshot, index)),
    headers: { 'Content-Disposition': `inline; filename="${index}.tlog-proof"` },
  };
});

/** @param covered a second leaf that the checkpoint must cover */
export async function tlogProofAt(
  ctx: PublicContext,
  snapshot: Snapshot,
  index: number,
  covered = index,
): Promise<string> {
  const under = await ctx.checkpoints.newest(snapshot, Math.max(index, covered));
  const path = await inclusionPathOf(ctx, under.checkpoint, index);
  return formatTlogProof({ index, path, checkpoint: under.note });
}

/** Builds the inclusion path of a leaf and verifies it against the signed root: tiles may be damaged. */
async function inclusionPathOf(
  ctx: PublicContext,
  { size, root }: Checkpoint,
  index: number,
  expected?: Uint8Array,
): Promise<Uint8Array[]> {
  const read = tileReader(ctx.source);
  const [path, leaf] = await Promise.all([
    inclusionFromTiles(nativeSha256, index, size, read),
    expected ?? hashAt(nativeSha256, { level: 0, index }, size, read),
  ]);
  if (!verifyInclusion(nativeSha256, { index, size, leafHash: leaf, path, root })) {
    throw malformed(`the tiles do not prove leaf ${index} under the root of the checkpoint`);
  }
  return path;
}

function leafIn(snapshot: Snapshot, text: string): number {
  const index = /^(0|[1-9][0-9]{0,15})$/.test(text) ? Number(text) : Infinity;
  const { size } = snapshot.opened.checkpoint;
  if (index < size) return index;
  throw new Problem('leaf_not_found', `The leaf index must be between 0 and ${size - 1}.`);
}

function noSuchFile(): Problem {
  return new Problem(
    'log_file_not_found',
    'The log has no such tile or entry bundle. It may be published later.',
  );
}

/** GET /api/public/keys. Verifiers must obtain the log keys that they pin from another source. */
export const getKeys = ofSnapshot(async (ctx, snapshot) => ({
  type: JSON_TYPE,
  body: utf8(JSON.stringify(await keysOf(ctx, snapshot))),
}));

export async function keysOf(ctx: PublicContext, snapshot: Snapshot): Promise<PublicKeys> {
  const { signedBy } = snapshot.opened;
  const vkey = ({ name, publicKey }: Vkey): string => formatVkey(nativeSha256, name, publicKey);
  const aep: PublicKeys['aep'] = [];
  const keys = await whenFetched(() => snapshot.leavesOf(MAP_KINDS.aepKey));
  for (const { key, record } of keys) {
    const { keyId, from, retiredFrom, compromisedFrom } = decodeAepKey(record);
    const activatedAt = activationIn(key);
    // Omits a key whose signatures never count, unless a compromise is the reason.
    if (from === null && (compromisedFrom ?? Infinity) > activatedAt + 1) continue;
    aep.push({
      ...(await jwkOf(ctx, snapshot, activatedAt, keyId)),
      activated_at: activatedAt,
      retired_at: retiredFrom,
      compromised_from: compromisedFrom,
    });
  }
  // A reader may pin a retired log key only with the size of the last tree that the key signed.
  const retired = ctx.trust.flatMap((key) =>
    key.maxSize === undefined || equalBytes(key.publicKey, signedBy.publicKey)
      ? []
      : [{ vkey: vkey(key), from_size: key.maxSize }],
  );
  const log = { origin: signedBy.name, vkey: vkey(signedBy), retired };
  return { schema_version: KEYS_SCHEMA, aep, log };
}

const jwks = new Map<string, PublicJwk>();

/** The key that the entry at an index activates, whose thumbprint must equal `keyId` of the record. */
async function jwkOf(
  ctx: PublicContext,
  snapshot: Snapshot,
  index: number,
  keyId: string,
): Promise<PublicJwk> {
  const known = jwks.get(keyId);
  if (known !== undefined) return known;
  const entry = parseEntry(await readEntryAt(ctx, snapshot, index));
  const jwk =
    entry.type === 'key' && entry.use === 'aep'
      ? publicJwk(nativeSha256, fromBase64Url(entry.public_key))
      : null;
  if (jwk?.kid !== keyId) throw malformed(`leaf ${index} does not activate key ${keyId}`);
  jwks.set(keyId, jwk);
  return jwk;
}
