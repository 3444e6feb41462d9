import { setTimeout as sleep } from 'node:timers/promises';
import { TILE_WIDTH } from '#protocol/tiles';
import { Findings } from './findings.js';
import type { FsckOptions, FsckResult } from './state.js';
import { RegistryHalf } from './registry-half.js';
import { SnapshotHalf } from './snapshot-half.js';

const CHUNK = 4 * TILE_WIDTH;
const SAVE_EVERY_MS = 2_000;
/** The run was stopped; its state is kept. */
export class Stopped extends Error {
  override readonly name = 'Stopped';
}

/**
 * Checks the registry, the snapshot, or both and their agreement. It rebuilds the public map from the
 * public log, and then walks the registry in log order, to compare each proof with its public record.
 *
 * @throws Stopped when the signal is aborted; the next run resumes from there
 */
export async function fsck(given: FsckOptions): Promise<FsckResult> {
  const options = { ...given, progress: stoppable(given) };
  const { state } = options;
  const findings = new Findings(state.run?.findings);
  if (options.registry === null) findings.skip('the registry');
  if (options.snapshot === null) findings.skip('the snapshot');
  // Reads the snapshot first, so that the database cannot be behind it.
  const snapshot = options.snapshot && new SnapshotHalf(options.snapshot, options, findings);
  await snapshot?.open();
  const registry =
    options.registry &&
    (await RegistryHalf.open(options.registry, options, findings, snapshot?.anchors ?? []));
  await snapshot?.compareWith(registry);
  await snapshot?.readLog(registry);
  const from = (await registry?.resume(state.run)) ?? state.run?.position ?? 0;
  if (from === 0 && (state.run?.position ?? 0) > 0) {
    // The saved state belongs to another log with the same name.
    await state.save(null);
    return fsck(given);
  }
  if (registry !== null) await walk(options, findings, registry, snapshot, from);
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
    resumedFrom: from,
  };
}

/** Walks the leaves of the registry. */
async function walk(
  options: FsckOptions,
  findings: Findings,
  registry: RegistryHalf,
  snapshot: SnapshotHalf | null,
  from: number,
): Promise<void> {
  const { chunkLeaves = CHUNK, saveEveryMs = SAVE_EVERY_MS } = options;
  const end = registry.size;
  let saved = options.now();
  for (let position = from; position < end;) {
    const to = Math.min(position + chunkLeaves, end);
    const results = await registry.step(position, to);
    if (results !== null) await snapshot?.compareRecords(results);
    position = to;
    options.progress('leaves', position, end);
    // Yields, so that signal handlers can run.
    await sleep(0);
    const isStopped = options.signal.aborted;
    // A run must resume at the start of a tile; the last tile may be partial.
    const isDue = isStopped || options.now() - saved >= saveEveryMs || position === end;
    if (isDue && position % TILE_WIDTH === 0) {
      await options.state.save({ position, walk: registry.state, findings: findings.state });
      saved = options.now();
    }
    if (isStopped) throw new Stopped(`stopped at leaf ${position} of ${end}`);
  }
}

/** Makes stages stop at a progress report, except the walk of the leaves, which saves its state. */
function stoppable({ progress, signal }: FsckOptions): FsckOptions['progress'] {
  return (stage, done, total) => {
    progress(stage, done, total);
    if (signal.aborted && stage !== 'leaves') throw new Stopped(`stopped while reading: ${stage}`);
  };
}
