import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { closing } from '../closing.js';
import { keepPublished } from './keep-published.js';
import { loadInTurn, type LoadPlan, type Target } from './paired-load.js';
import { startPinnedFacade } from './public-servers.js';
import { publishedManifest } from '../service/published.js';
import { publishedIds } from './published-ids.js';
import type { BenchRegistry } from '../service/registry.js';

export interface LookupCostOptions extends Pick<LoadPlan, 'rounds' | 'seconds' | 'signal'> {
  recentLookupLimit: number;
}

/** Ids that are asked for: enough that the processor's caches do not have all of them at hand. */
const IDS = 5_000;

/**
 * CPU time of a facade for one lookup of a proof in the window, in microseconds: by registry, of each
 * round. All of them are asked in turn.
 */
export async function lookupCosts(
  registries: readonly BenchRegistry[],
  dir: string,
  { recentLookupLimit, ...plan }: LookupCostOptions,
): Promise<number[][]> {
  return closing(async (open) => {
    const targets: Target[] = [];
    for (const [i, registry] of registries.entries()) {
      // A snapshot that is over says nothing any more.
      await keepPublished(registry, recentLookupLimit, open);
      const facade = await startPinnedFacade(registry, recentLookupLimit);
      open.push(() => facade.close());
      const pathsFile = join(dir, `${String(i)}.paths`);
      await mkdir(dir, { recursive: true });
      await writeFile(pathsFile, await pathsInWindow(registry, recentLookupLimit));
      const { url, pid } = facade;
      targets.push({ name: String(i), url, pid, pathsFile, isRefused: false });
    }
    const rounds = await loadInTurn(targets, { ...plan, connections: 64 });
    return targets.map(({ name }) => (rounds.get(name) ?? []).map(({ cpuMicros }) => cpuMicros));
  });
}

async function pathsInWindow(registry: BenchRegistry, recentLookupLimit: number): Promise<string> {
  const manifest = await publishedManifest(registry);
  if (manifest === null) throw new Error('nothing is published');
  const { tree_size: to } = manifest;
  const window = { from: Math.max(0, to - recentLookupLimit), to };
  const ids = await publishedIds(registry.snapshotDir, to, window, IDS);
  return ids.map((id) => `/api/public/verify/proof/${id}\n`).join('');
}
