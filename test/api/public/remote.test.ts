import { fork } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join, relative } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { packageRoot } from '#runtime/process/files';
import { skipsNginx, withoutNginx } from '../../fixtures/nginx.js';
import { RemoteWorld } from '../../fixtures/remote-world.js';
import { pinning } from '../../fixtures/pins.js';

let world: RemoteWorld;
beforeEach(async () => {
  if (!skipsNginx) world = await RemoteWorld.open();
});
afterEach(async () => {
  if (!skipsNginx) await world.close();
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
        ...pinning(world.snapshot.logVkey),
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

describe.skipIf(skipsNginx)(`documented nginx configuration${withoutNginx}`, () => {
  const ask = (path: string, init: RequestInit = {}): Promise<Response> =>
    fetch(world.nginx.url + path, { redirect: 'manual', ...init });

  it('marks immutable files as cacheable and mutable files for revalidation', async () => {
    await world.publish(300);
    const page = relative(world.snapshot.directory, world.snapshot.pages()[0]!);
    for (const path of ['/lookup/snapshot', '/checkpoint']) {
      const { status, headers } = await ask(path);
      expect(status).toBe(200);
      expect(headers.get('cache-control')).toBe('no-cache');
      expect(headers.get('content-type')).toBe('text/plain; charset=utf-8');
      expect(headers.get('etag')).not.toBeNull();
    }
    for (const path of [
      `/${page}`,
      '/tile/0/000',
      '/tile/0/001.p/48',
      '/tile/entries/000',
      '/tile/1/000.p/1',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 200 });
      expect(headers.get('cache-control')).toBe('public, max-age=31536000, immutable');
      expect(headers.get('content-type')).toBe('application/octet-stream');
      expect(headers.get('x-content-type-options')).toBe('nosniff');
    }
    const gzip = await ask('/lookup/snapshot', { headers: { 'Accept-Encoding': 'gzip' } });
    expect(gzip.headers.get('content-encoding')).toBeNull();
  });

  it('serves no other file and rejects uploads', async () => {
    await world.publish(1);
    writeFileSync(world.at('.staging/half'), 'x');
    writeFileSync(world.at('notes.txt'), 'x');
    writeFileSync(world.at('lookup/snapshot.bak'), 'x');
    writeFileSync(world.at('map/x'), 'x');
    for (const path of [
      '/',
      '/lookup',
      '/lookup/',
      '/map/',
      '/tile/',
      '/tile/0/',
      '/.lock',
      '/.lock/',
      '/.staging/',
      '/.staging/half',
      '/lookup/../.staging/half',
      '/lookup/%2e%2e/.staging/half',
      '/notes.txt',
      '/lookup/snapshot.bak',
      '/map/x',
      '/lookup/snapshot/',
    ]) {
      const { status, headers } = await ask(path);
      expect({ path, status }).toEqual({ path, status: 404 });
      expect(headers.get('cache-control') ?? '').not.toContain('immutable');
    }
    for (const method of ['PUT', 'POST', 'DELETE', 'MKCOL', 'PROPFIND']) {
      expect((await ask('/lookup/snapshot', { method })).status).toBe(405);
    }
  });
});
