import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { beforeEach, describe, expect, it } from 'vitest';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { fromHex } from '#protocol/bytes';
import type { MapQuery } from '#protocol/evidence/lookups';
import { mapKey } from '#protocol/map/nodes';
import { COSIGNED_PATH } from '#protocol/snapshot/location';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { withFlippedBit } from '../../fixtures/leaves.js';
import { TestSnapshot } from '../../fixtures/snapshot.js';
import { useSnapshot } from '../../fixtures/use-registry.js';

const snapshot = useSnapshot();
let publisher: Publisher;
let first: string;
beforeEach(async () => {
  [first = ''] = snapshot.grow(1);
  publisher = snapshot.publisher();
  await publisher.runCycle();
});

const locationPath = (): string => join(snapshot.directory, 'lookup/snapshot');
const location = (): Buffer => readFileSync(locationPath());
const proofQuery = (id: string): MapQuery => ({
  map: 'map_root',
  key: mapKey('proof', fromHex(id)),
});

const publishMore = () => snapshot.publishProof(publisher);

async function get(
  url: string,
  init?: RequestInit,
): Promise<{ status: number; code?: string; headers: Headers }> {
  const response = await fetch(url, init);
  const body = (await response.json()) as { code?: string };
  return { status: response.status, headers: response.headers, ...body };
}

describe('SnapshotPoller', () => {
  it('never replaces a newer snapshot when a slow earlier poll completes', async () => {
    const inner = directorySource(snapshot.directory);
    const held: (() => void)[] = [];
    const source: SnapshotSource = {
      ...inner,
      page: async (page) => {
        if (held.length === 0) await new Promise<void>((resolve) => held.push(resolve));
        return inner.page(page);
      },
    };
    const { poller } = snapshot.publicServer({ source });
    const slow = poller.refresh();
    await expect.poll(() => held.length).toBe(1);
    const second = await publishMore();
    const quick = poller.refresh();
    await Promise.race([quick, new Promise((resolve) => setTimeout(resolve, 100))]);
    held[0]!();
    await Promise.all([slow, quick]);
    expect(poller.current!.find(proofQuery(second))).not.toBeNull();
    expect(second).not.toBe(first);
  });

  it('continues to poll while the origin does not send the cosigned checkpoint', async () => {
    const inner = directorySource(snapshot.directory);
    const source: SnapshotSource = {
      ...inner,
      logFile: (path, isUrgent) =>
        path === COSIGNED_PATH ? new Promise(() => undefined) : inner.logFile(path, isUrgent),
    };
    const { poller } = snapshot.publicServer({ source });
    await poller.refresh();
    const second = await publishMore();
    await poller.refresh();
    expect(poller.current!.find(proofQuery(second))).not.toBeNull();
  });

  it('makes lookups answer 503 when the snapshot expires', async () => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    const { validUntil } = publicServer.poller.current!;
    snapshot.clock.at = validUntil - 10_000;
    const cacheable = await get(`${url}/api/public/verify/proof/${first}`);
    expect(cacheable.headers.get('cache-control')).toBe('public, max-age=1');
    snapshot.clock.at = validUntil - 1;
    const headers = { 'If-None-Match': cacheable.headers.get('etag')! };
    const last = await get(`${url}/api/public/verify/proof/${first}`, { headers });
    expect(last.status).toBe(200);
    expect(last.headers.get('cache-control')).toBe('no-store');
    expect(last.headers.get('x-svc-snapshot-issued-at')).toBe(formatTime(validUntil - 900_000));
    const logFile = await fetch(`${url}/log/proof/0`);
    expect(logFile.headers.get('cache-control')).toBe('public, max-age=1');
    snapshot.clock.at = validUntil;
    expect(await get(`${url}/api/public/verify/proof/${first}`)).toMatchObject({
      status: 503,
      code: 'snapshot_expired',
    });
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    // Log files never expire.
    const checkpoint = await fetch(`${url}/log/checkpoint`);
    expect(checkpoint.status).toBe(200);
    expect(checkpoint.headers.get('cache-control')).toBe('public, max-age=1');
    // A server that starts on an expired snapshot behaves the same.
    const restarted = await snapshot.serve(snapshot.publicServer());
    expect((await get(`${restarted.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    await publishMore();
    await publicServer.poller.refresh();
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
  });

  it('makes lookups answer 503 when the snapshot is ahead of the clock by its whole validity', async () => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    const { issuedAt, validUntil } = publicServer.poller.current!;
    snapshot.clock.at = 2 * issuedAt - validUntil + 1;
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
    snapshot.clock.at -= 1;
    expect(await get(`${url}/api/public/verify/proof/${first}`)).toMatchObject({
      status: 503,
      detail: expect.stringContaining('in the future') as string,
    });
    const ready = await fetch(`${url}/readyz`);
    expect(ready.status).toBe(503);
    expect(await ready.json()).toHaveProperty('refusal', expect.stringContaining('far ahead'));
  });

  it('rejects an older snapshot and keeps the served snapshot', async () => {
    const older = location();
    const second = await publishMore();
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    writeFileSync(locationPath(), older);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('not newer');
    expect((await get(`${url}/api/public/verify/proof/${second}`)).status).toBe(200);
    expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({
      status: 'ready',
      refusal: expect.stringContaining('not newer') as string,
    });
  });

  it('logs an error when the files of the served snapshot are missing, as without their disk', async () => {
    const lines: string[] = [];
    const log = pino({}, { write: (line) => void lines.push(line) });
    const { poller } = snapshot.publicServer({ log });
    await poller.refresh();
    rmSync(locationPath());
    await poller.refresh();
    expect(lines).toEqual([expect.stringMatching(/^{"level":50,.*newest snapshot rejected/)]);
  });

  it('rejects an altered location document of the generation that it serves', async () => {
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    const served = publicServer.poller.current;
    const other = location().toString().replace('"share_change":0', '"share_change":1');
    writeFileSync(locationPath(), other);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('not newer');
    expect(publicServer.poller.current).toBe(served);
  });

  it('rejects a snapshot whose checkpoint a different log key signed', async () => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    const other = new TestSnapshot();
    other.grow(1);
    await other.publisher().runCycle();
    cpSync(other.directory, snapshot.directory, { recursive: true });
    await other.close();
    snapshot.clock.at += 1000;
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).not.toBeNull();
    expect(publicServer.poller.current!.issuedAt).toBe(snapshot.clock.at - 1000);
    // A server that starts with this snapshot serves no verdict.
    const restarted = await snapshot.serve(snapshot.publicServer());
    expect((await get(`${restarted.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it('rejects a location document in which one bit was flipped', async () => {
    const good = location();
    for (let at = 0; at < good.length; at += 13) {
      writeFileSync(locationPath(), withFlippedBit(good, 8 * at));
      const publicServer = snapshot.publicServer();
      await publicServer.poller.refresh();
      expect(publicServer.poller.current).toBeNull();
    }
  });

  it('rejects a snapshot of a forked tree, even when it is newer', async () => {
    await publishMore();
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    const served = publicServer.poller.current;
    await publisher.close();
    rmSync(snapshot.directory, { recursive: true });
    snapshot.registry.truncate(2);
    snapshot.clock.at += 1000;
    for (let i = 0; i < 5; i++) snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + i });
    snapshot.registry.verify();
    await snapshot.publisher().runCycle();
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('does not extend');
    expect(publicServer.poller.current).toBe(served);
  });
});

it('snapshot with a changed byte in a page > makes lookups that need the page answer 503, never 404', async () => {
  snapshot.registry.addProofs(200);
  const last = await publishMore();
  let refused = 0;
  for (const path of snapshot.pages()) {
    const bytes = readFileSync(path);
    for (let at = 0; at < bytes.length; at += Math.ceil(bytes.length / 20)) {
      const changed = Buffer.from(bytes);
      changed[at]! ^= 0x10;
      writeFileSync(path, changed);
      const publicServer = snapshot.publicServer();
      const server = await snapshot.serve(publicServer);
      const { current } = publicServer.poller;
      for (const id of [first, last]) {
        const { status, code } = await get(`${server.url}/api/public/verify/proof/${id}`);
        if (status !== 200) expect({ status, code }).toEqual({ status: 503, code: code! });
        if (current !== null && status === 503) {
          refused++;
          expect(code).toBe('snapshot_unreadable');
          // The next lookup reads the repaired page.
          writeFileSync(path, bytes);
          expect((await get(`${server.url}/api/public/verify/proof/${id}`)).status).toBe(200);
          writeFileSync(path, changed);
        }
      }
      await server.close(0);
      publicServer.close();
    }
    writeFileSync(path, bytes);
  }
  expect(refused).toBeGreaterThan(20);
});
