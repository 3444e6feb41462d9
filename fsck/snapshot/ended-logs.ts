import { readEntry } from '#protocol/entries';
import type { SignedTree } from '#protocol/monitor/signed-tree';
import type { LogContext } from '#protocol/state/key-entries';
import { EMPTY_LOG } from '#protocol/state/log-state';
import { reduce, type LogReader } from '#protocol/state/reduce';
import { TILE_WIDTH } from '#protocol/tiles';

/**
 * The indexes of the verdict and snapshot entries that count for a retired log which this log continues.
 * Once an entry counts for this log, none counts for a retired one.
 */
export async function entriesOfEndedLogs(
  own: LogContext,
  endedOrigins: readonly string[],
  tree: SignedTree,
): Promise<Set<number>> {
  const found = new Set<number>();
  if (endedOrigins.length === 0) return found;
  // Which of these entries count does not depend on the map.
  const reader: LogReader = {
    value: () => Promise.resolve(null),
    entry: (index) => tree.entry(index),
    rootAt: (size) => tree.rootAt(size),
  };
  const logs = [own, ...endedOrigins.map((origin) => ({ ...own, origin }))];
  let states = logs.map(() => EMPTY_LOG);
  for (let first = 0; first < tree.head.size; first += TILE_WIDTH) {
    const entries = await tree.entries(first / TILE_WIDTH);
    const reduced = await Promise.all(
      logs.map((log, at) => reduce(log, states[at]!, entries, reader)),
    );
    states = reduced.map(({ state }) => state);
    const [ownIgnored, ...ignored] = reduced.map((result) => new Set(result.ignored));
    for (const [offset, bytes] of entries.entries()) {
      const type = readEntry(bytes)?.type;
      if (type !== 'verdict' && type !== 'snapshot') continue;
      const index = first + offset;
      if (!ownIgnored!.has(index)) return found;
      if (ignored.some((one) => !one.has(index))) found.add(index);
    }
  }
  return found;
}
