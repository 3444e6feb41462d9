import { readdirSync, readFileSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { pino } from 'pino';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { formatVkey } from '#protocol/note';
import { formatTime } from '#protocol/time';
import type { SegmentRead } from '#protocol/snapshot/find';
import type { Publisher } from '#publisher/publisher';
import { nativeSha256 } from '#runtime/crypto/node';
import { servedFrom } from '../../fixtures/served-from.js';
import { ORIGIN, SNAPSHOT_NAME, testKey, TestSnapshot } from '../../fixtures/snapshot.js';

/** Over the network the same is shown with fewer of the places. */
const STRIDE = servedFrom() === 'nginx' ? 7 : 1;

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

describe('a facade that follows', () => {
  it('goes over to a newer snapshot without a restart', async () => {
    const facade = snapshot.facade();
    const { url } = await snapshot.serve(facade);
    const second = await publishMore();
    expect((await get(`${url}/api/public/verify/proof/${second}`)).status).toBe(404);
    await facade.follower.refresh();
    expect((await get(`${url}/api/public/verify/proof/${second}`)).status).toBe(200);
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
  });

  it('polls on its own', async () => {
    const facade = snapshot.facade();
    await facade.start();
    const { url } = await snapshot.serve(facade);
    const second = await publishMore();
    await expect
      .poll(async () => (await get(`${url}/api/public/verify/proof/${second}`)).status)
      .toBe(200);
  });

  it('never goes back to what an earlier look found, however long that one took', async () => {
    const inner = directorySource(snapshot.directory);
    const held: (() => void)[] = [];
    const source: SnapshotSource = {
      ...inner,
      load: async (wanted) => {
        if (held.length === 0) await new Promise<void>((resolve) => held.push(resolve));
        return inner.load(wanted);
      },
    };
    const { follower } = snapshot.facade({ source });
    const slow = follower.refresh();
    await expect.poll(() => held.length).toBe(1);
    const second = await publishMore();
    const quick = follower.refresh();
    await Promise.race([quick, new Promise((resolve) => setTimeout(resolve, 100))]);
    held[0]!();
    await Promise.all([slow, quick]);
    expect(follower.current!.opened.manifest.proofs).toBe(2);
    expect(second).not.toBe(first);
  });

  it('starts to answer although its first look does not end', async () => {
    const inner = directorySource(snapshot.directory);
    const manifest = (): Promise<null> => new Promise(() => undefined);
    const facade = snapshot.facade({ source: { ...inner, manifest } });
    await facade.start();
    expect(facade.follower.current).toBeNull();
  });

  it('looks less often while it fails, and as often as ever afterwards', async () => {
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
      const facade = snapshot.facade({ source });
      await facade.start();
      const looksIn = async (ms: number): Promise<number> => {
        const before = looks;
        await vi.advanceTimersByTimeAsync(ms);
        return looks - before;
      };
      expect(await looksIn(20_000)).toBeLessThan(15);
      fails = false;
      await looksIn(4_000);
      expect(facade.follower.refusal).toBeNull();
      expect(await looksIn(10_000)).toBeGreaterThan(30);
    } finally {
      vi.useRealTimers();
    }
  });

  it('is not ready before there is a snapshot, and then is', async () => {
    const good = manifest();
    rmSync(manifestPath());
    const facade = snapshot.facade();
    const { url } = await snapshot.serve(facade);
    for (const path of [
      `/api/public/verify/proof/${first}`,
      '/api/public/verify/passport/x',
      '/api/public/verify?q=x',
      '/api/public/keys',
      '/log/checkpoint',
    ]) {
      const reply = await get(url + path);
      expect(reply).toMatchObject({ status: 503, code: 'snapshot_missing' });
      expect(reply.headers.get('retry-after')).not.toBeNull();
    }
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    expect((await fetch(`${url}/healthz`)).status).toBe(200);
    writeFileSync(manifestPath(), good);
    await facade.follower.refresh();
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it('asserts nothing past the signed end, and says so', async () => {
    const facade = snapshot.facade();
    const { url } = await snapshot.serve(facade);
    const { validUntil } = facade.follower.current!.opened;
    snapshot.clock.at = validUntil - 1;
    const last = await get(`${url}/api/public/verify/proof/${first}`);
    expect(last.status).toBe(200);
    expect(last.headers.get('x-svc-snapshot-issued-at')).toBe(formatTime(validUntil - 900_000));
    snapshot.clock.at = validUntil;
    for (const path of [`proof/${first}`, 'proof/x', 'trust/x', 'share/x', 'package/x']) {
      const reply = await get(`${url}/api/public/verify/${path}`);
      expect(reply).toMatchObject({ status: 503, code: 'snapshot_expired' });
      expect(reply.headers.get('retry-after')).not.toBeNull();
      expect(reply.headers.get('cache-control')).toMatch(/no-store$/);
    }
    const post = await fetch(`${url}/api/public/verify`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({
        schema_version: 'svc.public_verification.lookup_request/1.0',
        identifier: first,
      }),
    });
    expect(post.status).toBe(503);
    expect((await fetch(`${url}/readyz`)).status).toBe(503);
    // The log itself stays true.
    expect((await fetch(`${url}/log/checkpoint`)).status).toBe(200);
    // A facade that starts on an expired snapshot is no different.
    const young = await snapshot.serve(snapshot.facade());
    expect((await get(`${young.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    await publisher.runCycle();
    await facade.follower.refresh();
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
  });

  it('tells who runs it that nothing is asserted any more, once, and when it is again', async () => {
    const lines: string[] = [];
    const log = pino({ base: null }, { write: (line) => lines.push(line) });
    const facade = snapshot.facade({ log });
    const said = () => lines.splice(0).map((line) => (JSON.parse(line) as { msg: string }).msg);
    await facade.follower.refresh();
    expect(said()).toEqual([]);
    snapshot.clock.at = facade.follower.current!.opened.validUntil;
    await facade.follower.refresh();
    expect(said()).toEqual(['ALARM: the snapshot is over: nothing is asserted']);
    await facade.follower.refresh();
    expect(said()).toEqual([]);
    await publisher.runCycle();
    await facade.follower.refresh();
    expect(said()).toEqual(['verdicts are given again']);
  });

  it('refuses an older generation than it has served, and keeps the newer', async () => {
    const older = manifest();
    const second = await publishMore();
    const facade = snapshot.facade();
    const { url } = await snapshot.serve(facade);
    writeFileSync(manifestPath(), older);
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('older');
    expect((await get(`${url}/api/public/verify/proof/${second}`)).status).toBe(200);
    expect(await (await fetch(`${url}/readyz`)).json()).toMatchObject({
      status: 'ready',
      refusal: expect.stringContaining('older') as string,
    });
  });

  it('refuses a second snapshot of the same generation', async () => {
    const facade = snapshot.facade();
    await facade.follower.refresh();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    snapshot.registry.judge(first, { outcome: 'fail' });
    await publisher.runCycle();
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('two different snapshots');
  });

  it.each([
    ['snapshot', () => ({ snapshotKey: testKey() })],
    ['log', () => ({ logKey: testKey() })],
  ])('refuses a snapshot by another %s key', async (_which, keys) => {
    const facade = snapshot.facade();
    const { url } = await snapshot.serve(facade);
    await publisher.close();
    rmSync(join(snapshot.directory, 'lookup'), { recursive: true });
    rmSync(join(snapshot.directory, 'checkpoint'));
    snapshot.registry.checkpoints = [];
    snapshot.clock.at += 1000;
    await snapshot.publisher(keys()).runCycle();
    await facade.follower.refresh();
    expect(facade.follower.refusal).not.toBeNull();
    expect(facade.follower.current!.opened.issuedAt).toBe(snapshot.clock.at - 1000);
    // And a facade that starts there serves nothing at all.
    const young = await snapshot.serve(snapshot.facade());
    expect((await get(`${young.url}/api/public/verify/proof/${first}`)).status).toBe(503);
    expect((await fetch(`${url}/readyz`)).status).toBe(200);
  });

  it('refuses a key of the right name and id that is another key', async () => {
    const other = testKey();
    const { createFacade } = await import('#api/public/facade');
    expect(() =>
      createFacade({
        snapshotSource: directorySource(snapshot.directory),
        logVkey: snapshot.logVkey,
        snapshotVkey: snapshot.snapshotVkey.replace(
          /\+[^+]*$/,
          formatVkey(nativeSha256, SNAPSHOT_NAME, other.publicKey).replace(/^[^+]+\+[^+]+/, ''),
        ),
        clock: snapshot.clock,
        log: undefined as never,
      }),
    ).toThrow();
    expect(ORIGIN).not.toBe(SNAPSHOT_NAME);
  });

  it('refuses any manifest of which one byte was changed', async () => {
    const good = manifest();
    for (let at = 0; at < good.length; at += 3 * STRIDE) {
      const changed = Buffer.from(good);
      changed[at]! ^= 1;
      writeFileSync(manifestPath(), changed);
      const facade = snapshot.facade();
      await facade.follower.refresh();
      expect(facade.follower.current).toBeNull();
    }
  });

  it('refuses a smaller tree and a forked one, even signed and newer', async () => {
    await publishMore();
    const facade = snapshot.facade();
    await facade.follower.refresh();
    const served = facade.follower.current;
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
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('leaves, and had');
    await liar.close();
    forget(2);
    for (let i = 0; i < 5; i++) snapshot.registry.addProof({ acceptedAt: snapshot.clock.at + i });
    snapshot.registry.verify();
    await snapshot.publisher().runCycle();
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('does not extend');
    expect(facade.follower.current).toBe(served);
  });
});

describe('a snapshot that cannot be read', () => {
  const segmentFiles = (): string[] => {
    const root = join(snapshot.directory, 'lookup/segments');
    return readdirSync(root).map((name) => join(root, name));
  };

  it('is 503 on the lookup, never 404, whichever byte of its files is changed', async () => {
    const originals = segmentFiles().map((path) => ({ path, bytes: readFileSync(path) }));
    let refused = 0;
    for (const { path, bytes } of originals) {
      for (let at = 0; at < bytes.length; at += 11 * STRIDE) {
        const changed = Buffer.from(bytes);
        changed[at]! ^= 0x10;
        writeFileSync(path, changed);
        const facade = snapshot.facade();
        await facade.follower.refresh();
        if (facade.follower.current === null) {
          refused++;
          facade.close();
          continue;
        }
        const server = await snapshot.serve(facade);
        const { status, code } = await get(`${server.url}/api/public/verify/proof/${first}`);
        expect({ status, code }).toEqual({ status: 503, code: 'snapshot_unreadable' });
        await server.close(0);
        facade.close();
      }
      writeFileSync(path, bytes);
    }
    expect(refused).toBeGreaterThan(2);
  });

  it('is 503 when a bodies file is missing or cut short, and heals', async () => {
    const bodies = segmentFiles().sort((a, b) => statSync(b).size - statSync(a).size)[0]!;
    const kept = readFileSync(bodies);
    for (const harm of [
      () => renameSync(bodies, `${bodies}.gone`),
      () => writeFileSync(bodies, kept.subarray(0, 100)),
    ]) {
      harm();
      const { url } = await snapshot.serve(snapshot.facade());
      const reply = await get(`${url}/api/public/verify/proof/${first}`);
      expect(reply.status).toBe(503);
      expect(reply.headers.get('retry-after')).not.toBeNull();
      writeFileSync(bodies, kept);
      expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
    }
  });

  it('is 503 when the source fails later on', async () => {
    const inner = directorySource(snapshot.directory);
    let away = false;
    const source: SnapshotSource = {
      ...inner,
      read: async (wanted: SegmentRead) => {
        await Promise.resolve();
        if (away) throw new Error('the origin is away');
        return inner.read(wanted);
      },
    };
    const { url } = await snapshot.serve(snapshot.facade({ source }));
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
    away = true;
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(503);
    away = false;
    expect((await get(`${url}/api/public/verify/proof/${first}`)).status).toBe(200);
  });
});
