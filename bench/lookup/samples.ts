import { randomInt } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { newUuidHex } from '#sql/db/columns';
import { writePaths } from '../harness/wrk.js';
import { PROOF_PATH, readiness } from '../harness/public-api.js';

/** Paths with the exact answers that every server must give. */
export interface LookupSample {
  status: 200 | 404;
  bodies: ReadonlyMap<string, Buffer>;
  pathsFile: string;
}

const TIME_DIGITS = 12;

/**
 * Draws IDs of random proofs and looks each up once. The responses must be VALID or NOT_FOUND;
 * every server must then respond with the same bytes.
 *
 * @throws Error when an answer differs, or the log has no proof older than the recent lookups
 */
export async function takeSamples(
  draw: (from: number, to: number, count: number) => Promise<string[]>,
  publicUrl: string,
  options: { dir: string; recentLookupLimit: number; count: number },
) {
  const { dir, recentLookupLimit, count } = options;
  const { tree_size: size, lookup_from: boundary } = await readiness(publicUrl);
  // Draws no proof near `boundary`, because new entries of verifier and publisher move the boundary.
  const margin = Math.ceil(recentLookupLimit / 10);
  if (boundary - margin <= 0) throw new Error('the log has no proof older than the recent lookups');
  const take = async (
    name: string,
    ids: readonly string[],
    status: 200 | 404,
  ): Promise<LookupSample> => {
    const bodies = await lookUpAll(publicUrl, ids, status);
    const pathsFile = await writePaths(join(dir, `${name}.paths`), bodies.keys());
    return { status, bodies, pathsFile };
  };
  const recent = await take('recent', await draw(boundary + margin, size, count), 200);
  const older = await take('older', await draw(0, boundary - margin, count), 200);
  // These unknown IDs contain the times of issued IDs, so that searches do not end at once.
  const guesses = [...recent.bodies.keys()].map((path) => {
    const time = path.slice(PROOF_PATH.length, PROOF_PATH.length + TIME_DIGITS);
    return time + newUuidHex().slice(TIME_DIGITS);
  });
  const absent = await take('absent', guesses, 404);
  // nginx serves the bodies of `recent` from files at the same paths.
  const staticRoot = join(dir, 'static');
  await mkdir(join(staticRoot, dirname(`${PROOF_PATH}id`)), { recursive: true });
  for (const [path, body] of recent.bodies) await writeFile(join(staticRoot, path), body);
  return { recent, older, absent, staticRoot };
}

const CONCURRENCY = 16;

/** Looks each ID up, and checks the verdict: every proof of the bench is valid, and every other ID is unknown. */
async function lookUpAll(
  url: string,
  ids: readonly string[],
  wanted: 200 | 404,
): Promise<Map<string, Buffer>> {
  const verdict = `"verification_status":"${wanted === 200 ? 'VALID' : 'NOT_FOUND'}"`;
  const bodies = new Map<string, Buffer>();
  const left = ids.values();
  const lookUp = async (): Promise<void> => {
    for (const id of left) {
      const path = PROOF_PATH + id;
      let { status, body } = await get(url + path);
      // Waits for the verifier, which may be behind: a proof is not found before its first verdict.
      for (let i = 0; i < 600 && wanted === 200 && status === 404; i += 1) {
        await sleep(100);
        ({ status, body } = await get(url + path));
      }
      const isItsOwn = wanted === 404 || body.includes(id);
      if (status !== wanted || !body.includes(verdict) || !isItsOwn) {
        throw new Error(`${id}: status ${String(status)}, ${body.toString()}`);
      }
      bodies.set(path, body);
    }
  };
  await Promise.all(Array.from({ length: CONCURRENCY }, lookUp));
  return bodies;
}

async function get(url: string): Promise<{ status: number; body: Buffer }> {
  const response = await fetch(url);
  return { status: response.status, body: Buffer.from(await response.arrayBuffer()) };
}

/** Number of lookups at each server before `work`, and again after `work`. */
const CHECKS = 200;

/**
 * Compares status and bytes of random responses with the samples, before and after `work`.
 *
 * @throws Error when a response differs, which invalidates the figures
 */
export async function withEqualAnswers<T>(
  targets: readonly { name: string; url: string; sample?: LookupSample }[],
  work: () => Promise<T>,
): Promise<T> {
  const checkAll = async (): Promise<void> => {
    for (const { name, url, sample } of targets) {
      const paths = [...(sample?.bodies.keys() ?? [])];
      for (let i = 0; sample !== undefined && i < CHECKS; i += 1) {
        const path = paths[randomInt(paths.length)]!;
        const { status, body } = await get(url + path);
        if (status === sample.status && body.equals(sample.bodies.get(path)!)) continue;
        throw new Error(
          `${name}: the response to ${path} (status ${String(status)}) differs from the sample`,
        );
      }
    }
  };
  await checkAll();
  const result = await work();
  await checkAll();
  return result;
}
