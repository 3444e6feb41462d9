import { setTimeout as sleep } from 'node:timers/promises';
import { TILE_WIDTH } from '#protocol/tiles';
import { Findings } from './findings.js';
import type { FsckOptions, FsckResult } from './state.js';
import { finishRegistry, openRegistry } from './registry-half.js';
import type { RegistryWalk } from './registry/walk.js';
import { openSnapshot, type SnapshotHalf } from './snapshot-half.js';

const CHUNK = 4 * TILE_WIDTH;
const SAVE_EVERY_MS = 2_000;
/** The run was stopped; its state is kept. */
export class Stopped extends Error {}

/**
 * Checks the registry, the snapshot, or both and their agreement. The check rebuilds the public map from the public
 * log, and then walks the registry in log order, to compare each proof with its public record.
 *
 * @throws Stopped when the signal is aborted; the next run resumes at the saved position
 */
export async function fsck(given: FsckOptions): Promise<FsckResult> {
  const options = { ...given, progress: stoppable(given) };
  const { state } = options;
  const saved = state.content.run ?? { position: 0, walk: null, findings: undefined };
  const findings = new Findings(saved.findings);
  if (options.registry === null) findings.skip('the registry');
  if (options.snapshot === null) findings.skip('the snapshot');
  // Reads the snapshot first, so that the database cannot be behind it.
  const snapshot = options.snapshot && (await openSnapshot(options.snapshot, options, findings));
  const registry =
    options.registry &&
    (await openRegistry(options.registry, findings, snapshot?.anchors ?? [], saved.walk));
  await snapshot?.readLog(registry);
  const from = registry?.position ?? saved.position;
  if (from === 0 && saved.position > 0) {
    // The saved state belongs to another log with the same name.
    await state.save(null);
    return fsck(given);
  }
  if (registry !== null) {
    await walk(options, registry, snapshot);
    await finishRegistry(registry, options);
  }
  await snapshot?.finish(registry);
  await state.save(null).catch(({ message }: Error) => {
    // A full disk must not hide the findings.
    findings.unchecked(
      `the age of later snapshots, because the state was not saved (${message}): start the next run with --restart`,
    );
  });
  return {
    ...findings.state,
    isCorrupt: findings.isCorrupt,
    leaves: registry?.ctx.size ?? null,
    published: snapshot?.published ?? null,
    resumedFrom: from,
  };
}

async function walk(
  options: FsckOptions,
  registry: RegistryWalk,
  snapshot: SnapshotHalf | null,
): Promise<void> {
  const { chunkLeaves = CHUNK, saveEveryMs = SAVE_EVERY_MS } = options;
  const { size: end, findings } = registry.ctx;
  let saved = Date.now();
  while (registry.position < end) {
    const results = await registry.step(Math.min(registry.position + chunkLeaves, end));
    await snapshot?.compareRecords(results);
    const { position } = registry;
    options.progress('leaves', position, end);
    // Yields, so that signal handlers can run.
    await sleep(0);
    const isStopped = options.signal.aborted;
    // Saves only positions at the start of a tile, where a run must resume; the last tile may be partial.
    const isDue = isStopped || Date.now() - saved >= saveEveryMs || position === end;
    if (isDue && position % TILE_WIDTH === 0) {
      const run = { position, walk: registry.snapshot(), findings: findings.state };
      // Ignores a failure, unless the run stops: the next save may succeed, and the last one reports a failure.
      const saving = options.state.save(run);
      await (isStopped ? saving : saving.catch(() => undefined));
      saved = Date.now();
    }
    if (isStopped) throw new Stopped(`stopped at leaf ${position} of ${end}`);
  }
}

/** Stops every stage at its next progress report, except `leaves`: that stage saves its state first. */
function stoppable({ progress, signal }: FsckOptions): FsckOptions['progress'] {
  return (stage, done, total) => {
    progress(stage, done, total);
    if (signal.aborted && stage !== 'leaves') throw new Stopped(`stopped while reading: ${stage}`);
  };
}
