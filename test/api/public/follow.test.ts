import { readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { formatTime } from '#protocol/time';
import type { Publisher } from '#publisher/publisher';
import { testKey, TestSnapshot } from '../../fixtures/snapshot.js';

let snapshot: TestSnapshot;
let publisher: Publisher;
let first: string;
beforeEach(async () => {
  snapshot = new TestSnapshot();
  publisher = snapshot.publisher();
  first = snapshot.registry.addProof();
  snapshot.registry.verify();
  await publisher.runCycle();
});
afterEach(() => snapshot.close());

const manifestPath = (): string => join(snapshot.directory, 'lookup/manifest');
const manifest = (): Buffer => readFileSync(manifestPath());

async function publishMore(): Promise<string> {
  snapshot.clock.at += 1000;
  const id = snapshot.registry.addProof();
  snapshot.registry.verify();
  await publisher.runCycle();
  return id;
}

async function get(url: string): Promise<{ status: number; code?: string; headers: Headers }> {
  const response = await fetch(url);
  const body = (await response.json()) as { code?: string };
  return { status: response.status, headers: response.headers, ...body };
}

describe('SnapshotPoller', () => {
  it('never replaces a newer snapshot when a slow earlier poll completes', async () => {
    const inner = directorySource(snapshot.directory);
    const held: (() => void)[] = [];
    const source: SnapshotSource = {
      ...inner,
      load: async (wanted) => {
        if (held.length === 0) await new Promise<void>((resolve) => held.push(resolve));
        return inner.load(wanted);
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
    expect(poller.current!.opened.manifest.proofs).toBe(2);
    expect(second).not.toBe(first);
  });

  it('backs off while polls fail and then resumes its interval', async () => {
    let looks = 0;
    let fails = true;
    const inner = directorySource(snapshot.directory);
    const source: SnapshotSource = {
      ...inner,
      manifest: () => {
        looks++;
        return fails ? Promise.reject(new Error('away')) : Promise.resolve(manifest());
      },
    };
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
    try {
      const publicServer = snapshot.publicServer({ source });
      await publicServer.start();
      const looksIn = async (ms: number): Promise<number> => {
        const before = looks;
        await vi.advanceTimersByTimeAsync(ms);
        return looks - before;
      };
      expect(await looksIn(20_000)).toBeLessThan(15);
      fails = false;
      await looksIn(4_000);
      expect(publicServer.poller.rejection).toBeNull();
      expect(await looksIn(10_000)).toBeGreaterThan(30);
    } finally {
      vi.useRealTimers();
    }
  });

  it('makes the server ready with the first snapshot', async () => {
    const good = manifest();
    rmSync(manifestPath());
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    writeFileSync(manifestPath(), good);
    await publicServer.poller.refresh();
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it('makes lookups answer 503 when the snapshot expires', async () => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    const { validUntil } = publicServer.poller.current!.opened;
    snapshot.clock.at = validUntil - 1;
    const last = await get(`${url}/api/public/verify/proof/${first}`);
    expect(last.status).toBe(200);
    expect(last.headers.get('x-svc-snapshot-issued-at')).toBe(formatTime(validUntil - 900_000));
    snapshot.clock.at = validUntil;
    expect(await get(`${url}/api/public/verify/proof/${first}`)).toMatchObject({
      status: 503,
      code: 'snapshot_expired',
    });
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    // Log files never expire.
    expect((await fetch(`${url}/log/checkpoint`)).status).toBe(200);
    // A server that starts on an expired snapshot behaves the same.
    const young = await snapshot.serve(snapshot.publicServer());
    expect((await get(`${young.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    await publisher.runCycle();
    await publicServer.poller.refresh();
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
  });

  it('logs each expiry and each recovery once', async () => {
    const lines: string[] = [];
    const log = pino({ base: null }, { write: (line) => lines.push(line) });
    const publicServer = snapshot.publicServer({ log });
    const said = () => lines.splice(0).map((line) => (JSON.parse(line) as { msg: string }).msg);
    await publicServer.poller.refresh();
    expect(said()).toEqual([]);
    snapshot.clock.at = publicServer.poller.current!.opened.validUntil;
    await publicServer.poller.refresh();
    expect(said()).toEqual(['snapshot expired: lookups answer 503 until a newer snapshot arrives']);
    await publicServer.poller.refresh();
    expect(said()).toEqual([]);
    await publisher.runCycle();
    await publicServer.poller.refresh();
    expect(said()).toEqual(['snapshot valid again: lookups answer verdicts']);
  });

  it('rejects an older generation and keeps the newer one', async () => {
    const older = manifest();
    const second = await publishMore();
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    writeFileSync(manifestPath(), older);
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('older');
    expect((await get(`${url}/api/public/verify/proof/${second}`)).status).toBe(200);
    expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({
      status: 'ready',
      refusal: expect.stringContaining('older') as string,
    });
  });

  it('rejects a second snapshot of the same generation', async () => {
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    snapshot.registry.recordVerdict(first, { outcome: 'fail' });
    await publisher.runCycle();
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('two different snapshots');
  });

  it.each([
    ['snapshot', () => ({ snapshotKey: testKey() })],
    ['log', () => ({ logKey: testKey() })],
  ])('rejects a snapshot that is signed with another %s key', async (_which, keys) => {
    const publicServer = snapshot.publicServer();
    const { url } = await snapshot.serve(publicServer);
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    rmSync(join(snapshot.directory, 'checkpoint'));
    snapshot.registry.checkpoints = [];
    snapshot.clock.at += 1000;
    await snapshot.publisher(keys()).runCycle();
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).not.toBeNull();
    expect(publicServer.poller.current!.opened.issuedAt).toBe(snapshot.clock.at - 1000);
    // A server that starts with this snapshot serves no verdict.
    const young = await snapshot.serve(snapshot.publicServer());
    expect((await get(`${young.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it('rejects a manifest with any changed byte', async () => {
    const good = manifest();
    for (let at = 0; at < good.length; at += 13) {
      const changed = Buffer.from(good);
      changed[at]! ^= 1;
      writeFileSync(manifestPath(), changed);
      const publicServer = snapshot.publicServer();
      await publicServer.poller.refresh();
      expect(publicServer.poller.current).toBeNull();
    }
  });

  it('rejects a smaller or forked tree, even when signed and newer', async () => {
    await publishMore();
    const publicServer = snapshot.publicServer();
    await publicServer.poller.refresh();
    const served = publicServer.poller.current;
    await publisher.close();
    const forget = (size: number): void => {
      rmSync(snapshot.directory, { recursive: true });
      snapshot.registry.truncate(size);
      snapshot.registry.checkpoints = [];
      snapshot.clock.at += 1000;
    };
    forget(2);
    const liar = snapshot.publisher();
    await liar.runCycle();
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('leaves, and had');
    await liar.close();
    forget(2);
    for (let i = 0; i < 5; i++) snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + i });
    snapshot.registry.verify();
    await snapshot.publisher().runCycle();
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toContain('does not extend');
    expect(publicServer.poller.current).toBe(served);
  });
});

describe('unreadable snapshot', () => {
  const segmentFiles = (): string[] => {
    const root = join(snapshot.directory, 'lookup/segments');
    return readdirSync(root).map((name) => join(root, name));
  };

  it('makes lookups answer 503, never 404, when any byte of its files was changed', async () => {
    const originals = segmentFiles().map((path) => ({ path, bytes: readFileSync(path) }));
    let refused = 0;
    for (const { path, bytes } of originals) {
      for (let at = 0; at < bytes.length; at += 53) {
        const changed = Buffer.from(bytes);
        changed[at]! ^= 0x10;
        writeFileSync(path, changed);
        const publicServer = snapshot.publicServer();
        await publicServer.poller.refresh();
        if (publicServer.poller.current === null) {
          refused++;
          publicServer.close();
          continue;
        }
        const server = await snapshot.serve(publicServer);
        const { status, code } = await get(`${server.url}/api/public/verify/proof/${first}`);
        expect({ status, code }).toEqual({ status: 503, code: 'snapshot_unreadable' });
        await server.close(0);
        publicServer.close();
      }
      writeFileSync(path, bytes);
    }
    expect(refused).toBeGreaterThan(2);
  });
});
