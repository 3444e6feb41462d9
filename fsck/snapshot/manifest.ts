import { fromUtf8, toHex } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { isAepKeyEntry } from '#protocol/entries';
import { ProtocolError } from '#protocol/errors';
import { parseStrict } from '#protocol/json';
import type { KeyedEntry } from '#protocol/keys';
import type { AepKeyEntry } from '#protocol/schemas/log-entry';
import { aepKeys, keysFileSchema, type AepKey } from '#protocol/snapshot/keys';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  openManifest,
  type OpenedManifest,
  segmentPath,
} from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import { nativeVerify, nativeSha256 } from '#runtime/crypto/node';
import type { SnapshotContext, PublishedContext } from './source.js';
import { difference } from './record.js';
import type { PublicLog } from './log.js';

/** The manifest if a pinned key signed it; reports its faults. */
export async function readManifest(
  ctx: SnapshotContext,
  greatestGeneration: number,
): Promise<OpenedManifest | null> {
  const { files, findings, trust } = ctx;
  const bytes = await files.read(MANIFEST_PATH);
  if (bytes === null) {
    findings.add('manifest_missing', MANIFEST_PATH, `a signed manifest in ${files.where}`);
    return null;
  }
  let opened: OpenedManifest;
  try {
    opened = openManifest(nativeVerify, bytes, trust);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a manifest signed by the pinned keys: ${error.code}, ${error.message}`;
    findings.add('manifest_unverifiable', MANIFEST_PATH, expected);
    return null;
  }
  const { generation } = opened.manifest;
  if (generation < greatestGeneration) {
    const expected = `generation ${greatestGeneration} or a later one, found ${generation}`;
    findings.add('manifest_went_back', MANIFEST_PATH, expected);
  }
  if (generation < Math.floor(opened.issuedAt / 1000)) {
    const expected = `a generation of at least issued_at in Unix seconds, found ${generation}`;
    findings.add('manifest_differs', MANIFEST_PATH, expected);
  }
  if (opened.validUntil <= ctx.now()) {
    const expected = `a valid_until in the future, found ${formatTime(opened.validUntil)}`;
    findings.add('snapshot_over', MANIFEST_PATH, expected);
  }
  return opened;
}

/** The public checkpoint if a pinned log key signed it. It may be ahead of the manifest. */
export async function readCheckpoint(ctx: SnapshotContext): Promise<Checkpoint | null> {
  const { files, findings, trust } = ctx;
  const bytes = await files.read(CHECKPOINT_PATH);
  if (bytes === null) {
    findings.add('public_checkpoint_missing', CHECKPOINT_PATH, 'a signed checkpoint');
    return null;
  }
  try {
    const { log } = trust;
    return openCheckpointNote(fromUtf8(bytes), log, log[0].name, nativeVerify).checkpoint;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a checkpoint signed by the pinned log key: ${error.code}, ${error.message}`;
    findings.add('public_checkpoint_unverifiable', CHECKPOINT_PATH, expected);
    return null;
  }
}

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
    ({ leafIndex, entry }): { leafIndex: number; entry: AepKeyEntry }[] =>
      isAepKeyEntry(entry) && leafIndex < manifest.tree_size ? [{ leafIndex, entry }] : [],
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
    ({ entry }) => isAepKeyEntry(entry) && entry.key_id === keyId && entry.from_index === from,
  );
}

function servedKeys(bytes: Uint8Array): AepKey[] | null {
  try {
    return keysFileSchema.parse(parseStrict(bytes)).aep;
  } catch {
    return null;
  }
}
