import { fork } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { skipsNginx, withoutNginx, type NginxRequest } from '../../fixtures/nginx.js';
import { MANIFEST, READABLE, UNREADABLE, RemoteWorld } from '../../fixtures/remote-world.js';

const MINUTE = 60_000;

let world: RemoteWorld;
beforeEach(async () => {
  if (!skipsNginx) world = await RemoteWorld.open();
});
afterEach(async () => {
  if (!skipsNginx) await world.close();
});

describe.skipIf(skipsNginx)(`public API server over nginx${withoutNginx}`, () => {
  it('fetches a snapshot once, then only new index segments and requested record pieces', async () => {
    const ids = await world.publish(600);
    const { publicServer, look } = await world.startPublicServer();
    const part = publicServer.poller.current!.opened.manifest.index_parts[0]!;
    const start = await world.nginx.requests();
    expect(start.map(({ path, status }) => [path, status])).toEqual([
      ['/lookup/manifest', 200],
      [`/lookup/segments/${part.sha256}`, 206],
      [`/lookup/segments/${publicServer.poller.current!.opened.manifest.keys.sha256}`, 206],
    ]);
    expect(start[1]!.bytes).toBe(part.resident_bytes);

    // Nothing changed, so the poll is one conditional request without a response body.
    await publicServer.poller.refresh();
    const poll = await world.nginx.requests();
    expect(poll).toMatchObject([{ path: '/lookup/manifest', status: 304, bytes: 0 }]);
    expect(poll[0]!.ifNoneMatch).not.toBe('');

    expect(await look(ids[300]!)).toMatchObject(READABLE);
    const cold = await world.nginx.requests();
    expect(cold.map(({ status }) => status)).toEqual([206, 206, 206]);
    expect(cold.every(({ range }) => /^bytes=\d+-\d+$/.test(range))).toBe(true);
    expect(cold.reduce((sum, { bytes }) => sum + bytes, 0)).toBeLessThan(4000);
    expect(await look(ids[300]!)).toMatchObject(READABLE);
    expect(await world.nginx.requests()).toEqual([]);

    const [later] = await world.publish(3);
    await publicServer.poller.refresh();
    const more = await world.nginx.requests();
    const parts = publicServer.poller.current!.opened.manifest.index_parts;
    const fresh = parts.filter(({ sha256 }) => sha256 !== part.sha256);
    expect(parts).toContainEqual(part);
    const segments = more.filter(({ path }) => path.startsWith('/lookup/segments/'));
    expect(segments.map(({ path }) => path)).toEqual(
      fresh.map(({ sha256 }) => `/lookup/segments/${sha256}`),
    );
    expect(more.filter(({ path }) => path === '/lookup/manifest')).toHaveLength(1);
    // The other requests fetch the right-edge tiles of the consistency proof.
    const tiles = more.filter(({ path }) => path.startsWith('/tile/'));
    expect(tiles.length).toBe(more.length - segments.length - 1);
    expect(tiles.length).toBeLessThan(6);
    expect(await look(later!)).toMatchObject(READABLE);
  });

  it('fetches a piece once for concurrent lookups and reuses connections', async () => {
    const ids = await world.publish(20);
    const { look } = await world.startPublicServer();
    await world.nginx.requests();
    await Promise.all(Array.from({ length: 50 }, () => look(ids[5]!)));
    expect(await world.nginx.requests()).toHaveLength(3);
    await world.nginx.requests();
    const before = await world.nginx.connections();
    for (const id of ids) await look(id);
    expect((await world.nginx.connections()) - before).toBeLessThan(5);
  });

  it('resumes a large transfer that was interrupted', async () => {
    const ids = await world.publish(2000);
    const part = (await world.startPublicServer()).publicServer.poller.current!.opened.manifest
      .index_parts[0]!;
    await world.nginx.stop();
    // The origin sends a first chunk, then single bytes until the server aborts the transfer.
    await world.nginx.start('limit_rate_after 8k; limit_rate 1;');
    await world.nginx.requests();
    const { publicServer, look } = await world.startPublicServer(world.remote({ timeoutMs: 1000 }));
    expect(publicServer.poller.current).toBeNull();
    const asked: NginxRequest[] = [];
    const askedForPart = async (): Promise<NginxRequest[]> => {
      asked.push(...(await world.nginx.requests()));
      return asked.filter(
        ({ path, range }) =>
          path.endsWith(part.sha256) && range.endsWith(`-${part.resident_bytes - 1}`),
      );
    };
    // nginx logs the response when it notices the closed connection.
    await expect.poll(askedForPart).toHaveLength(1);
    await world.nginx.stop();
    await world.nginx.start();
    await publicServer.poller.refresh();
    expect(await look(ids[1000]!)).toMatchObject(READABLE);
    const [first, second, ...others] = await askedForPart();
    expect(others).toEqual([]);
    expect(first!.range).toBe(`bytes=0-${part.resident_bytes - 1}`);
    expect(Number(/\d+/.exec(second!.range)![0])).toBeGreaterThan(4000);
    expect(second!.bytes).toBeLessThan(part.resident_bytes - 4000);
  });
});

describe.skipIf(skipsNginx)(`public API program with SNAPSHOT_URL${withoutNginx}`, () => {
  it('is not ready while nginx is down, becomes ready when nginx returns, and stops on SIGTERM', async () => {
    world.snapshot.clock.at = Date.now();
    const [id] = await world.publish(1);
    await world.nginx.stop();
    const program = fork(join(packageRoot, 'dist/programs/facade.js'), {
      env: {
        ...process.env,
        SNAPSHOT_URL: world.nginx.url,
        LOG_VKEY: world.snapshot.logVkey,
        SNAPSHOT_VKEY: world.snapshot.snapshotVkey,
        PUBLIC_PORT: '0',
        LOG_LEVEL: 'silent',
      },
    });
    try {
      const [{ url }] = (await once(program, 'message')) as [{ url: string }];
      const status = async (path: string): Promise<number> => (await fetch(url + path)).status;
      expect(await status('/healthz')).toBe(200);
      expect(await status('/readyz')).toBe(503);
      await world.nginx.start();
      await expect.poll(() => status('/readyz')).toBe(200);
      expect(await status(`/api/public/verify/proof/${id}`)).toBe(200);
    } finally {
      const ended = once(program, 'exit');
      program.kill('SIGTERM');
      expect(await ended).toEqual([0, null]);
    }
  });
});

describe.skipIf(skipsNginx)(`public API server after an outage of nginx${withoutNginx}`, () => {
  it('loads the newest manifest when the files of its own snapshot were deleted', async () => {
    const ids: string[] = [];
    for (let i = 0; i < 3; i++) ids.push(...(await world.publish(2)));
    const { publicServer, look } = await world.startPublicServer();
    const { index_parts: held } = publicServer.poller.current!.opened.manifest;
    for (let i = 0; i < 4; i++) ids.push(...(await world.publish(150)));
    for (const minutes of [6, 59, 6]) {
      world.snapshot.clock.at += minutes * MINUTE;
      await world.publisher.runCycle();
    }
    const gone = held.filter(
      ({ sha256 }) => !readdirSync(world.at('lookup/segments')).includes(sha256),
    );
    expect(gone.length).toBeGreaterThan(0);
    // The clock was suspended too, so the server does not know that its snapshot has expired.
    const { at: now } = world.snapshot.clock;
    world.snapshot.clock.at = publicServer.poller.current!.opened.issuedAt;
    expect(await look(ids[0]!)).toMatchObject(UNREADABLE);
    world.snapshot.clock.at = now;
    await publicServer.poller.refresh();
    for (const id of [ids[0]!, ids.at(-1)!]) expect(await look(id)).toMatchObject(READABLE);
  });

  it('loads the next manifest when index segments of the first manifest disappear meanwhile', async () => {
    for (let i = 0; i < 3; i++) await world.publish(2);
    const stale = readFileSync(world.at(MANIFEST));
    const ids = await world.publish(150);
    for (const minutes of [6, 59, 6]) {
      world.snapshot.clock.at += minutes * MINUTE;
      await world.publisher.runCycle();
    }
    const source = world.remote();
    let isFirst = true;
    const { publicServer, look } = await world.startPublicServer({
      ...source,
      manifest: () => {
        if (!isFirst) return source.manifest();
        isFirst = false;
        return Promise.resolve(stale);
      },
    });
    expect(publicServer.poller.rejection).toContain('404');
    await publicServer.poller.refresh();
    expect(await look(ids[0]!)).toMatchObject(READABLE);
  });
});

describe.skipIf(skipsNginx)(`documented nginx configuration${withoutNginx}`, () => {
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(world.nginx.url + path, { redirect: 'manual', ...init });

  it('marks immutable files as cacheable and mutable files for revalidation', async () => {
    await world.publish(300);
    const segment = readdirSync(world.at('lookup/segments'))[0]!;
    for (const path of ['/lookup/manifest', '/checkpoint']) {
      const { status, headers } = await ask(path);
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-cache');
      expect(headers.get('content-type')).toBe('text/plain; charset=utf-8');
      expect(headers.get('etag')).not.toBeNull();
    }
    for (const path of [
      `/lookup/segments/${segment}`,
      '/tile/0/000',
      '/tile/0/001.p/45',
      '/tile/entries/000',
      '/tile/1/000.p/1',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 200 });
      expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
      expect(headers.get('content-type')).toBe('application/octet-stream');
      expect(headers.get('x-content-type-options')).toBe('nosniff');
      expect(headers.get('accept-ranges')).toBe('bytes');
    }
    // Equal mtime second and length give equal ETags, so readers refetch young manifests.
    const before = (await ask('/lookup/manifest')).headers.get('etag');
    await world.publish(0);
    expect((await ask('/lookup/manifest')).headers.get('etag')).toBe(before);
    const gzip = await ask('/lookup/manifest', { headers: { 'Accept-Encoding': 'gzip' } });
    expect(gzip.headers.get('content-encoding')).toBeNull();
  });

  it('serves no other file and rejects uploads', async () => {
    await world.publish(1);
    writeFileSync(world.at('.staging/half'), 'x');
    writeFileSync(world.at('notes.txt'), 'x');
    writeFileSync(world.at('lookup/manifest.bak'), 'x');
    writeFileSync(world.at('lookup/segments/x'), 'x');
    for (const path of [
      '/',
      '/lookup',
      '/lookup/',
      '/lookup/segments/',
      '/tile/',
      '/tile/0/',
      '/.lock',
      '/.lock/',
      '/.staging/',
      '/.staging/half',
      '/lookup/../.staging/half',
      '/lookup/%2e%2e/.staging/half',
      '/notes.txt',
      '/lookup/manifest.bak',
      '/lookup/segments/x',
      '/lookup/manifest/',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 404 });
      expect(headers.get('cache-control') ?? '').not.toContain('immutable');
    }
    for (const method of ['PUT', 'POST', 'DELETE', 'MKCOL', 'PROPFIND']) {
      expect((await ask('/lookup/manifest', { method })).status).toBe(405);
    }
  });
});
