import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '#runtime/process/package-root';

/** What `node --cpu-prof` writes, as far as it is read here. */
interface CpuProfile {
  nodes: {
    id: number;
    callFrame: { functionName: string; url: string; lineNumber: number };
  }[];
  samples: number[];
  /** Microseconds from the sample before to this one. */
  timeDeltas: number[];
}

export interface SelfTime {
  where: string;
  ms: number;
  /** Of the time in which the process did anything. */
  share: number;
}

/** Where the processes that left their profiles in `directory` spent their time, most first. */
export async function topSelfTimes(directory: string, most: number): Promise<SelfTime[]> {
  const times = new Map<string, number>();
  for (const name of await readdir(directory)) {
    if (!name.endsWith('.cpuprofile')) continue;
    addProfile(times, JSON.parse(await readFile(join(directory, name), 'utf8')) as CpuProfile);
  }
  times.delete('(idle)');
  const busy = [...times.values()].reduce((sum, ms) => sum + ms, 0);
  return [...times]
    .sort(([, a], [, b]) => b - a)
    .slice(0, most)
    .map(([where, ms]) => ({ where, ms, share: ms / busy }));
}

function addProfile(times: Map<string, number>, profile: CpuProfile): void {
  const places = new Map(
    profile.nodes.map(({ id, callFrame }) => {
      const { functionName, url, lineNumber } = callFrame;
      const name = functionName === '' ? '(anonymous)' : functionName;
      return [id, url === '' ? name : `${name} ${shortened(url)}:${String(lineNumber + 1)}`];
    }),
  );
  profile.samples.forEach((id, i) => {
    const place = places.get(id) ?? '(unknown)';
    times.set(place, (times.get(place) ?? 0) + (profile.timeDeltas[i] ?? 0) / 1000);
  });
}

function shortened(url: string): string {
  const path = url.startsWith('file:') ? fileURLToPath(url) : url;
  return path.replace(`${packageRoot}/`, '').replace(/^.*node_modules\//, '');
}
