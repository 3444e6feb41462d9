import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { packageRoot } from '#runtime/process/package-root';
import { print } from './command.js';

/** The part of a `node --cpu-prof` file that is read here. */
interface CpuProfile {
  nodes: {
    id: number;
    callFrame: { functionName: string; url: string; lineNumber: number };
  }[];
  samples: number[];
  /** Microseconds since the previous sample. */
  timeDeltas: number[];
}

const SHOWN = 15;

/** Prints the functions with the most self time in each program's profiles below `directory`. */
export async function printProfiles(directory: string): Promise<void> {
  for (const program of await readdir(directory)) {
    print(`\nself time: ${program}`);
    const times = await selfTimes(join(directory, program));
    times.delete('(idle)');
    const busy = [...times.values()].reduce((sum, ms) => sum + ms, 0);
    for (const [where, ms] of [...times].sort(([, a], [, b]) => b - a).slice(0, SHOWN)) {
      const share = ((ms / busy) * 100).toFixed(1).padStart(6);
      print(`${share} % ${ms.toFixed(0).padStart(8)} ms  ${where}`);
    }
  }
}

/** Milliseconds by function, over all profiles in `directory`. */
async function selfTimes(directory: string): Promise<Map<string, number>> {
  const times = new Map<string, number>();
  for (const name of await readdir(directory)) {
    if (!name.endsWith('.cpuprofile')) continue;
    const profile = JSON.parse(await readFile(join(directory, name), 'utf8')) as CpuProfile;
    const places = new Map(profile.nodes.map(({ id, callFrame }) => [id, placeOf(callFrame)]));
    profile.samples.forEach((id, i) => {
      const place = places.get(id) ?? '(unknown)';
      times.set(place, (times.get(place) ?? 0) + (profile.timeDeltas[i] ?? 0) / 1000);
    });
  }
  return times;
}

function placeOf({ functionName, url, lineNumber }: CpuProfile['nodes'][0]['callFrame']): string {
  const name = functionName === '' ? '(anonymous)' : functionName;
  if (url === '') return name;
  const path = url.startsWith('file:') ? fileURLToPath(url) : url;
  const short = path.replace(`${packageRoot}/`, '').replace(/^.*node_modules\//, '');
  return `${name} ${short}:${String(lineNumber + 1)}`;
}
