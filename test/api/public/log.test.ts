import { readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { leafHash, verifyInclusion } from '#protocol/merkle';
import type { Facade } from '#protocol/schemas/facade';
import { decodeEntryBundle } from '#protocol/tiles';
import { parseTlogProof } from '#protocol/checkpoint';
import { nativeSha256 } from '#runtime/crypto/node';
import { openCheckpoint } from '../../fixtures/checkpoints.js';
import { withFlippedBit } from '../../fixtures/leaves.js';
import { entryOf, ORIGIN, TestSnapshot } from '../../fixtures/snapshot.js';

const snapshot = new TestSnapshot();
let url: string;
let proofIds: string[];

beforeAll(async () => {
  proofIds = snapshot.registry.addProofs(596);
  snapshot.registry.verify();
  await snapshot.publisher().runCycle();
  url = (await snapshot.serve(snapshot.publicServer())).url;
});
afterAll(() => snapshot.close());

async function get(path: string) {
  const response = await fetch(url + path);
  return {
    status: response.status,
    type: response.headers.get('content-type'),
    cache: response.headers.get('cache-control'),
    bytes: Buffer.from(await response.arrayBuffer()),
  };
}

describe('/log', () => {
  it('is a C2SP monitoring prefix', async () => {
    const checkpoint = await get('/log/checkpoint');
    expect(checkpoint).toMatchObject({ status: 200, type: 'text/plain; charset=utf-8' });
    expect(checkpoint.cache).toBe('public, max-age=1');
    const { size } = openCheckpoint(checkpoint.bytes.toString(), snapshot.logVkey, ORIGIN);
    expect(size).toBe(600);
    for (const [path, length] of [
      ['/log/tile/0/000', 8192],
      ['/log/tile/0/002.p/88', 88 * 32],
      ['/log/tile/1/000.p/2', 64],
    ] as const) {
      const tile = await get(path);
      expect(tile).toMatchObject({ status: 200, type: 'application/octet-stream' });
      expect(tile.cache).toContain('immutable');
      expect(tile.bytes.length).toBe(length);
    }
    const bundle = decodeEntryBundle((await get('/log/tile/entries/001')).bytes);
    expect(bundle).toHaveLength(256);
    expect(Buffer.from(bundle[3]!)).toEqual(Buffer.from(entryOf(snapshot.registry.all[259]!)));
  });

  it('serves a partial tile without a file as a prefix of the full tile', async () => {
    const tile = (await get('/log/tile/0/000')).bytes;
    expect((await get('/log/tile/0/000.p/7')).bytes).toEqual(tile.subarray(0, 7 * 32));
    const entries = decodeEntryBundle((await get('/log/tile/entries/000.p/7')).bytes);
    expect(entries).toHaveLength(7);
  });

  it('serves the partial tile and bundle that a lookup response names, although the files of the signed tree are wider', async () => {
    const answer = await get(`/api/public/verify/proof/${proofIds[595]!}`);
    const { downloads } = JSON.parse(answer.bytes.toString()) as Facade;
    expect(downloads).toMatchObject({
      entry_bundle: '/log/tile/entries/002.p/87',
      tile: '/log/tile/0/002.p/87',
    });
    expect(decodeEntryBundle((await get('/log/tile/entries/002.p/87')).bytes)).toHaveLength(87);
    expect((await get('/log/tile/0/002.p/87')).bytes).toHaveLength(87 * 32);
  });

  it('lets no cache store a tile or bundle that the served checkpoint does not cover', async () => {
    for (const tile of ['0/002', 'entries/002', '1/000']) {
      const file = join(snapshot.directory, 'tile', tile);
      writeFileSync(file, Buffer.alloc(8192));
      expect(await get(`/log/tile/${tile}`)).toMatchObject({ status: 200, cache: 'no-store' });
      rmSync(file);
    }
  });

  it.each([
    '/log/tile/0/002',
    '/log/tile/0/000.p/0',
    '/log/tile/0/000.p/256',
    '/log/tile/0/000.p/07',
    '/log/tile/64/000',
    '/log/tile/0/0',
    '/log/tile/0/x000/000',
    '/log/tile/0/../checkpoint',
    '/log/tile/0/%2e%2e/%2e%2e/lookup/manifest',
    '/log/tile/',
  ])('answers 404 for %s', async (path) => {
    expect((await get(path)).status).toBe(404);
  });

  it('proves the inclusion of leaves under the served checkpoint', async () => {
    for (const index of [0, 1, 255, 256, 300, 511, 512, 599]) {
      const reply = await get(`/log/proof/${index}`);
      expect(reply).toMatchObject({ status: 200, type: 'text/plain; charset=utf-8' });
      const proof = parseTlogProof(reply.bytes.toString());
      expect(proof.index).toBe(index);
      const { size, root } = openCheckpoint(proof.checkpoint, snapshot.logVkey, ORIGIN);
      const entry = await get(`/log/entry/${index}`);
      expect(entry.type).toBe('application/json; charset=utf-8');
      const leaf = leafHash(nativeSha256, entry.bytes);
      const { path } = proof;
      expect(verifyInclusion(nativeSha256, { index, size, leafHash: leaf, path, root })).toBe(true);
    }
  });

  it.each(['600', '-1', '1.5', '01', 'x', '9'.repeat(30), '1e3'])(
    'answers 404 for the entry and proof of leaf index %s',
    async (index) => {
      expect((await get(`/log/proof/${index}`)).status).toBe(404);
      expect((await get(`/log/entry/${index}`)).status).toBe(404);
    },
  );

  it('answers 503 for a damaged tile or entry', async () => {
    const tile = join(snapshot.directory, 'tile/0/001');
    const bundle = join(snapshot.directory, 'tile/entries/001');
    const kept = [readFileSync(tile), readFileSync(bundle)] as const;
    writeFileSync(tile, withFlippedBit(kept[0], 8 * 32 * 9));
    expect((await get('/log/proof/300')).status).toBe(503);
    expect((await get('/log/proof/265')).status).toBe(503);
    writeFileSync(tile, kept[0]);
    writeFileSync(bundle, withFlippedBit(kept[1], 8 * 20));
    expect((await get('/log/entry/256')).status).toBe(503);
    writeFileSync(bundle, kept[1]);
    rmSync(tile);
    expect((await get('/log/proof/300')).status).toBe(503);
    writeFileSync(tile, kept[0]);
    expect((await get('/log/proof/300')).status).toBe(200);
  });
});
