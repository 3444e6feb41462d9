import { fromUtf8 } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { ProtocolError } from '#protocol/errors';
import {
  CHECKPOINT_PATH,
  MANIFEST_PATH,
  openManifest,
  type OpenedManifest,
} from '#protocol/snapshot/manifest';
import { formatTime } from '#protocol/time';
import { nativeVerify } from '#runtime/crypto/node';
import type { SnapshotContext } from './context.js';

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
    const expected = `a generation of at least the seconds when it was issued, found ${generation}`;
    findings.add('manifest_differs', MANIFEST_PATH, expected);
  }
  if (opened.validUntil <= ctx.now()) {
    const expected = `an end that is to come, found ${formatTime(opened.validUntil)}`;
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
