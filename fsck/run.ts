import { setTimeout as sleep } from 'node:timers/promises';
import { TILE_WIDTH } from '#protocol/tiles';
import { Findings } from './findings.js';
import type { FsckOptions, FsckResult } from './state.js';
import { RegistryHalf } from './registry-half.js';
import { SnapshotHalf } from './snapshot-half.js';

const CHUNK = 4 * TILE_WIDTH;
const SAVE_EVERY_MS = 2_000;
/** The publisher deletes replaced files after an hour; the run opens a newer manifest before. */
const MANIFEST_FOR_MS = 40 * 60 * 1000;

/** The run was stopped; its state is kept. */
export class Stopped extends Error {
  override readonly name = 'Stopped';
}

/**
 * Checks the registry, the snapshot, or both and their agreement. It walks both in log order, some
 * leaves at a time, to compare published data with the proof that it derives from.
 *
 * @throws Stopped when the signal is aborted; the next run resumes from there
 */
export async function fsck(given: FsckOptions): Promise<FsckResult> {
  const options = { ...given, progress: stoppable(given) };
  const { state } = options;
  const findings = new Findings(state.run?.findings);
  if (options.registry === null) findings.skip('the registry');
  if (options.snapshot === null) findings.skip('the snapshot');
  let resumedFrom: number | null = null;
  for (;;) {
    // Reads the manifest first, so that the database cannot be behind it.
    const openedAt = options.now();
    const snapshot = options.snapshot && new SnapshotHalf(options.snapshot, options, findings);
    await snapshot?.open();
    const registry =
      options.registry &&
      (await RegistryHalf.open(options.registry, options, findings, snapshot?.anchors ?? []));
    await snapshot?.compareWith(registry);
    await snapshot?.readLog();
    const from = (await registry?.resume(state.run)) ?? state.run?.position ?? 0;
    if (from === 0 && (state.run?.position ?? 0) > 0) {
      // The saved state belongs to another log with the same name.
      await state.save(null);
      return fsck(given);
    }
    snapshot?.resume(state.run);
    resumedFrom ??= from;
    const isOver = () => options.now() - openedAt > MANIFEST_FOR_MS;
    if (!(await walk(options, findings, registry, snapshot, from, isOver))) continue;
    await registry?.finish();
    await snapshot?.finish(registry);
    await state.save(null);
    return {
      isComplete: findings.state.unchecked.length === 0,
      isCorrupt: findings.isCorrupt,
      findings: findings.state.reported,
      counts: findings.state.counts,
      unchecked: findings.state.unchecked,
      leftOut: findings.state.skipped,
      leaves: registry?.size ?? null,
      published: snapshot?.published ?? null,
      resumedFrom,
    };
  }
}

/** Walks the leaves; returns false when a newer manifest must be opened before continuing. */
async function walk(
  options: FsckOptions,
  findings: Findings,
  registry: RegistryHalf | null,
  snapshot: SnapshotHalf | null,
  from: number,
  isOver: () => boolean,
): Promise<boolean> {
  const { chunkLeaves = CHUNK, saveEveryMs = SAVE_EVERY_MS } = options;
  const end = Math.max(registry?.size ?? 0, snapshot?.size ?? 0);
  const save = (position: number): Promise<void> =>
    options.state.save({
      position,
      walk: registry?.state ?? null,
      proofs: snapshot?.state ?? null,
      findings: findings.state,
    });
  let saved = options.now();
  for (let position = from; position < end;) {
    const to = Math.min(position + chunkLeaves, end);
    const results = (await registry?.step(position, to)) ?? null;
    await snapshot?.step(position, to, results);
    position = to;
    options.progress('leaves', position, end);
    // Yields, so that signal handlers can run.
    await sleep(0);
    const isStopped = options.signal.aborted;
    const renews = position < end && snapshot !== null && isOver();
    // A run must resume at the start of a tile; the last tile may be partial.
    const isDue = isStopped || renews || options.now() - saved >= saveEveryMs || position === end;
    if (isDue && position % TILE_WIDTH === 0) {
      await save(position);
      saved = options.now();
    }
    if (isStopped) throw new Stopped(`stopped at leaf ${position} of ${end}`);
    if (renews) return false;
  }
  return true;
}

/** Makes stages stop at a progress report, except the walk of the leaves, which saves its state. */
function stoppable({ progress, signal }: FsckOptions): FsckOptions['progress'] {
  return (stage, done, total) => {
    progress(stage, done, total);
    if (signal.aborted && stage !== 'leaves') throw new Stopped(`stopped while reading: ${stage}`);
  };
}
