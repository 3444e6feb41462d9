import { randomInt } from 'node:crypto';
import { mkdir, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { newUuidHex } from '#api/engine/http/new-id';
import { publishedManifest } from '../service/published.js';
import { publishedIds } from './published-ids.js';
import type { BenchRegistry } from '../service/registry.js';

/** Paths that are asked for, and what each has to be answered with, byte for byte. */
export interface LookupSample {
  status: 200 | 404;
  bodies: ReadonlyMap<string, Buffer>;
  /** All paths, one a line. */
  pathsFile: string;
}

export interface LookupSamples {
  proofs: number;
  inWindow: LookupSample;
  /** Of proofs that are older than the window. */
  older: LookupSample;
  /** Of ids that nobody has. */
  absent: LookupSample;
  /** The bodies of `inWindow` as files below this directory, at their paths. */
  staticRoot: string;
}

const PATH = '/api/public/verify/proof/';
/** Of a UUIDv7, in hex. */
const TIME_DIGITS = 12;

/**
 * Draws ids from the published log, and asks a facade once for each. What it says is held against
 * what a verified proof is answered with, and is from then on what everybody has to answer.
 *
 * @throws Error when an answer is another, or the log has no proof outside the window
 */
export async function takeSamples(
  registry: Pick<BenchRegistry, 'snapshotDir' | 'vkeys'>,
  facadeUrl: string,
  options: { dir: string; recentLookupLimit: number; count: number },
): Promise<LookupSamples> {
  const { dir, recentLookupLimit, count } = options;
  const manifest = await publishedManifest(registry);
  if (manifest === null) throw new Error('nothing is published');
  const { tree_size: size, proofs } = manifest;
  // Leaves that are no proofs may push the edge a little; none of those near it is drawn.
  const edge = size - recentLookupLimit;
  const margin = size - proofs;
  if (edge - margin <= 0) throw new Error('all proofs are in the window: none is old');
  const draw = (from: number, to: number): Promise<string[]> =>
    publishedIds(registry.snapshotDir, size, { from, to }, count);
  const take = async (
    name: string,
    ids: readonly string[],
    status: 200 | 404,
  ): Promise<LookupSample> => {
    const bodies = await askOnce(facadeUrl, ids, status);
    const pathsFile = join(dir, `${name}.paths`);
    await writeFile(pathsFile, `${[...bodies.keys()].join('\n')}\n`);
    return { status, bodies, pathsFile };
  };
  const inWindow = await take('in-window', await draw(edge + margin, size), 200);
  const older = await take('older', await draw(0, edge - margin), 200);
  // Of the same times as those that are there, as a guess would be.
  const guesses = [...inWindow.bodies.keys()].map(
    (path) => path.slice(PATH.length, PATH.length + TIME_DIGITS) + newUuidHex().slice(TIME_DIGITS),
  );
  const absent = await take('absent', guesses, 404);
  const staticRoot = join(dir, 'static');
  await mkdir(join(staticRoot, dirname(PATH + 'id')), { recursive: true });
  for (const [path, body] of inWindow.bodies) await writeFile(join(staticRoot, path), body);
  return { proofs, inWindow, older, absent, staticRoot };
}

const AT_ONCE = 16;

async function askOnce(
  url: string,
  ids: readonly string[],
  status: 200 | 404,
): Promise<Map<string, Buffer>> {
  const bodies = new Map<string, Buffer>();
  const left = ids.values();
  const ask = async (): Promise<void> => {
    for (const id of left) {
      const { status: found, body } = await get(url + PATH + id);
      requireVerdict(id, found, body, status);
      bodies.set(PATH + id, body);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, ask));
  return bodies;
}

async function get(url: string): Promise<{ status: number; body: Buffer }> {
  const response = await fetch(url);
  return { status: response.status, body: Buffer.from(await response.arrayBuffer()) };
}

/** What is right is known here: all proofs of a measurement are valid, and nobody else is. */
function requireVerdict(id: string, status: number, body: Buffer, wanted: 200 | 404): void {
  const said = JSON.parse(body.toString()) as {
    result?: string;
    verification?: { verification_status: string };
  };
  const verdict = said.result ?? said.verification?.verification_status ?? '';
  const expected = wanted === 200 ? 'VALID' : 'NOT_FOUND';
  const isItsOwn = wanted === 404 || body.includes(id);
  if (status !== wanted || verdict !== expected || !isItsOwn) {
    throw new Error(`${id} is answered ${String(status)} ${verdict}`);
  }
}

/** Asks for some of a sample again, and throws when one is not answered as it was. */
export async function requireAsSampled(
  name: string,
  url: string,
  { status, bodies }: LookupSample,
  count: number,
): Promise<void> {
  const paths = [...bodies.keys()];
  for (let i = 0; i < count; i += 1) {
    const path = paths[randomInt(paths.length)] ?? '';
    const found = await get(url + path);
    const { body } = found;
    // nginx has its own page for what is not there, so it is never asked for that.
    if (found.status !== status || !body.equals(bodies.get(path) ?? Buffer.alloc(0))) {
      throw new Error(`${name} answers ${path} with ${String(found.status)} and another body`);
    }
  }
}
