import { fromUtf8 } from '#protocol/bytes';
import { openCheckpointNote, type Checkpoint } from '#protocol/checkpoint';
import { ProtocolError } from '#protocol/errors';
import type { LogFiles } from '#protocol/monitor/files';
import {
  CHECKPOINT_PATH,
  LOCATION_PATH,
  openLocation,
  type OpenedLocation,
} from '#protocol/snapshot/location';
import type { PinnedKeys } from '#protocol/snapshot/trust';
import { formatTime } from '#protocol/time';
import { nativeCrypto, nativeVerify } from '#runtime/crypto/node';
import type { Findings } from '../findings.js';

export interface SnapshotContext {
  files: LogFiles;
  findings: Findings;
  /** The pinned keys: only checkpoints that these keys signed are accepted. */
  log: PinnedKeys;
}

/** The published snapshot if its entry is in the pinned log; reports its faults. */
export async function readLocation(
  ctx: SnapshotContext,
  latestIndex: number,
): Promise<OpenedLocation | null> {
  const { files, findings, log } = ctx;
  const bytes = await files.read(LOCATION_PATH);
  if (bytes === null) {
    findings.add('snapshot_missing', LOCATION_PATH, `the newest snapshot in ${files.where}`);
    return null;
  }
  let opened: OpenedLocation;
  try {
    opened = openLocation(nativeCrypto, bytes, log);
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a snapshot entry in the pinned log, found ${error.code}: ${error.message}`;
    findings.add('snapshot_unverifiable', LOCATION_PATH, expected);
    return null;
  }
  if (opened.index < latestIndex) {
    const expected = `generation ${latestIndex} or a later one, found ${opened.index}`;
    findings.add('snapshot_went_back', LOCATION_PATH, expected);
  }
  if (opened.validUntil <= Date.now()) {
    const expected = `a valid_until in the future, found ${formatTime(opened.validUntil)}`;
    findings.add('snapshot_over', LOCATION_PATH, expected);
  }
  return opened;
}

/**
 * The published checkpoint, which may cover more leaves than the snapshot; null unless a pinned log
 * key signed it.
 */
export async function readCheckpoint(ctx: SnapshotContext): Promise<Checkpoint | null> {
  const { files, findings, log } = ctx;
  const bytes = await files.read(CHECKPOINT_PATH);
  if (bytes === null) {
    findings.add('public_checkpoint_missing', CHECKPOINT_PATH, 'a signed checkpoint');
    return null;
  }
  try {
    return openCheckpointNote(fromUtf8(bytes), log, log[0].name, nativeVerify).checkpoint;
  } catch (error) {
    if (!(error instanceof ProtocolError)) throw error;
    const expected = `a checkpoint signed by the pinned log key: ${error.code}, ${error.message}`;
    findings.add('public_checkpoint_unverifiable', CHECKPOINT_PATH, expected);
    return null;
  }
}
