import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { readFileSync, statSync } from 'node:fs';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { httpSource, type HttpSourceOptions } from '#api/public/snapshot/http-source';
import type { Facade } from '#api/public/facade';
import type { Publisher } from '#publisher/publisher';
import { TestSnapshot } from '../../fixtures/snapshot.js';

/** A static file server like any other: ranges, entity tags, and a record of what was asked. */
class Origin {
  asked: string[] = [];
  sent = 0;
  ranges = true;
  /** What it says the time is, and that of its files' last change; tags are made of the latter. */
  says: { now: number; changed: number } | null = null;
  /** Headers that it has no business to send. */
  odd: Record<string, string> = {};
  /** Answers about segments are kept back here, when this is not null. */
  held: (() => void)[] | null = null;
  /** So many times it breaks a connection when that is used again. */
  breaks = 0;
  /** Changes a file's content on its way out. */
  tamper: (path: string, bytes: Buffer) => Buffer = (_path, bytes) => bytes;
  private server: Server | undefined;
  port = 0;

  constructor(private readonly root: () => string) {}

  async listen(): Promise<void> {
    this.server = createServer((req, res) => this.serve(req, res));
    await new Promise<void>((resolve) =>
      this.server!.listen(this.port, '127.0.0.1', () => resolve()),
    );
    this.port = (this.server.address() as AddressInfo).port;
  }

  async close(): Promise<void> {
    this.server?.closeAllConnections();
    await new Promise((resolve) => (this.server ? this.server.close(resolve) : resolve(null)));
    this.server = undefined;
  }

  private readonly used = new WeakSet<object>();

  private serve(req: IncomingMessage, res: ServerResponse): void {
    const path = req.url!.slice(1);
    this.asked.push(path);
    if (this.breaks > 0 && this.used.has(req.socket)) {
      this.breaks--;
      req.socket.destroy();
      return;
    }
    this.used.add(req.socket);
    if (this.held === null || !path.startsWith('lookup/segments/')) this.answer(path, req, res);
    else this.held.push(() => this.answer(path, req, res));
  }

  private answer(path: string, req: IncomingMessage, res: ServerResponse): void {
    const file = join(this.root(), path);
    if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true) {
      res.writeHead(404).end();
      return;
    }
    const bytes = this.tamper(path, readFileSync(file));
    const etag = `"${this.says?.changed ?? statSync(file).mtimeMs}-${bytes.length}"`;
    for (const [name, value] of Object.entries(this.odd)) res.setHeader(name, value);
    if (this.says !== null) {
      res.setHeader('Date', new Date(this.says.now).toUTCString());
      res.setHeader('Last-Modified', new Date(this.says.changed).toUTCString());
    }
    if (req.headers['if-none-match'] === etag) {
      res.writeHead(304).end();
      return;
    }
    const range = this.ranges && /^bytes=(\d+)-(\d+)$/.exec(req.headers.range ?? '');
    const body = range ? bytes.subarray(Number(range[1]), Number(range[2]) + 1) : bytes;
    this.sent += body.length;
    if (range) {
      res.writeHead(206, {
        'Content-Range': `bytes ${range[1]}-${range[2]}/${bytes.length}`,
        'Content-Length': body.length,
      });
    } else res.writeHead(200, { ETag: etag, 'Content-Length': body.length });
    res.end(body);
  }
}

let snapshot: TestSnapshot;
let publisher: Publisher;
let origin: Origin;
let facade: Facade;
let url: string;
let ids: string[];

beforeEach(async () => {
  snapshot = new TestSnapshot();
  publisher = snapshot.publisher();
  ids = snapshot.registry.addProofs(2000);
  snapshot.registry.verify();
  await publisher.runCycle();
  origin = new Origin(() => snapshot.directory);
  await origin.listen();
  facade = snapshot.facade({ source: httpSource(`http://127.0.0.1:${origin.port}`) });
  url = (await snapshot.serve(facade)).url;
});
afterEach(async () => {
  await snapshot.close();
  await origin.close();
});

async function served(options: HttpSourceOptions): Promise<{ url: string; facade: Facade }> {
  const source = httpSource(`http://127.0.0.1:${origin.port}`, options);
  const other = snapshot.facade({ source });
  return { url: (await snapshot.serve(other)).url, facade: other };
}

const look = async (id: string): Promise<number> => {
  const response = await fetch(`${url}/api/public/verify/proof/${id}`);
  await response.arrayBuffer();
  return response.status;
};

async function publishMore(): Promise<string> {
  snapshot.clock.at += 1000;
  const id = snapshot.registry.addProof();
  snapshot.registry.verify();
  await publisher.runCycle();
  return id;
}

describe('a facade that is fed over http', () => {
  it.each([true, false])('answers as one beside the files does (ranges: %s)', async (ranges) => {
    origin.ranges = ranges;
    for (const id of [ids[0]!, ids[1234]!, ids[1999]!]) expect(await look(id)).toBe(200);
    expect(await look('0'.repeat(32))).toBe(404);
    const body = await (await fetch(`${url}/api/public/verify/proof/${ids[7]}`)).text();
    const beside = await snapshot.serve(snapshot.facade());
    expect(body).toBe(
      await (await fetch(`${beside.url}/api/public/verify/proof/${ids[7]}`)).text(),
    );
    for (const path of ['/log/checkpoint', '/log/tile/0/001', '/log/proof/1500', '/log/entry/3']) {
      expect((await fetch(url + path)).status).toBe(200);
    }
    expect((await fetch(`${url}/log/tile/0/099`)).status).toBe(404);
  });

  it('fetches a start and a lookup in small pieces, and what it knows not again', async () => {
    expect(origin.sent).toBeLessThan(60_000);
    origin.sent = 0;
    await look(ids[1000]!);
    expect(origin.sent).toBeLessThan(6000);
    origin.asked = [];
    await look(ids[1000]!);
    await facade.follower.refresh();
    expect(origin.asked).toEqual(['lookup/manifest']);
    const later = await publishMore();
    origin.sent = 0;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
    expect(await look(later)).toBe(200);
    // The new part, the new body, and the tiles that show the log to have grown.
    expect(origin.sent).toBeLessThan(35_000);
  });

  it('asks once for what many want at the same time', async () => {
    origin.asked = [];
    await Promise.all(Array.from({ length: 50 }, () => look(ids[5]!)));
    expect(origin.asked.length).toBeLessThanOrEqual(3);
  });

  it('goes on with what it has while the origin is away, then fails with 503, and resumes', async () => {
    await look(ids[3]!);
    await origin.close();
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('cannot be reached');
    expect(await look(ids[3]!)).toBe(200);
    expect(await look(ids[1500]!)).toBe(503);
    expect(await look(ids[3]!)).toBe(200);
    const later = await publishMore();
    await origin.listen();
    await facade.follower.refresh();
    expect(await look(later)).toBe(200);
    expect(await look(ids[1500]!)).toBe(200);
  });

  it('never answers from a tampered file, and heals when the origin does', async () => {
    const harmless = origin.tamper;
    origin.tamper = (path, bytes) => {
      if (!path.startsWith('lookup/segments/')) return bytes;
      const changed = Buffer.from(bytes);
      for (let at = 0; at < changed.length; at += 50) changed[at]! ^= 1;
      return changed;
    };
    for (const id of ids.slice(0, 5)) expect(await look(id)).toBe(503);
    origin.tamper = harmless;
    for (const id of ids.slice(0, 5)) expect(await look(id)).toBe(200);
  });

  it('keeps the good snapshot when the manifest is tampered with, or an older one comes back', async () => {
    const older = readFileSync(join(snapshot.directory, 'lookup/manifest'));
    const later = await publishMore();
    await facade.follower.refresh();
    await publishMore();
    origin.tamper = (path, bytes) =>
      path === 'lookup/manifest'
        ? Buffer.from(bytes.toString().replace('"proofs":2', '"proofs":1'))
        : bytes;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('does not verify');
    expect(await look(later)).toBe(200);
    origin.tamper = (path, bytes) => (path === 'lookup/manifest' ? older : bytes);
    await facade.follower.refresh();
    expect(facade.follower.refusal).toContain('older');
    expect(await look(later)).toBe(200);
    origin.tamper = (_path, bytes) => bytes;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
  });

  it('takes the manifest for unchanged only if that was a good one', async () => {
    await publishMore();
    // On its way here it was changed, and its tag was not.
    origin.tamper = (path, bytes) => {
      if (path === 'lookup/manifest') bytes[bytes.length - 5]! ^= 1;
      return bytes;
    };
    await facade.follower.refresh();
    expect(facade.follower.refusal).not.toBeNull();
    origin.tamper = (_path, bytes) => bytes;
    await facade.follower.refresh();
    expect(facade.follower.refusal).toBeNull();
  });

  it('refuses pieces of another length and redirects', async () => {
    origin.tamper = (path, bytes) =>
      path.startsWith('lookup/segments/') ? Buffer.concat([bytes, Buffer.alloc(1)]) : bytes;
    expect(await look(ids[9]!)).toBe(503);
    origin.tamper = (_path, bytes) => bytes;
    const elsewhere = createServer((req, res) =>
      res.writeHead(302, { Location: `http://127.0.0.1:${origin.port}${req.url}` }).end(),
    );
    await new Promise<void>((resolve) => elsewhere.listen(0, '127.0.0.1', resolve));
    const { port } = elsewhere.address() as AddressInfo;
    const other = snapshot.facade({ source: httpSource(`http://127.0.0.1:${port}`) });
    await other.follower.refresh();
    expect(other.follower.current).toBeNull();
    elsewhere.close();
  });

  it('refuses pieces of an encoding', async () => {
    origin.odd = { 'Content-Encoding': 'gzip' };
    expect(await look(ids[9]!)).toBe(503);
    origin.odd = {};
    expect(await look(ids[9]!)).toBe(200);
  });

  it('looks twice at a manifest that is younger than the second that its tag is made of', async () => {
    const now = 1_700_000_000_000;
    origin.says = { now, changed: now };
    await publishMore();
    await facade.follower.refresh();
    const { generation } = facade.follower.current!.opened.manifest;
    // Another one of the same second and length.
    snapshot.clock.at += 1000;
    await publisher.runCycle();
    origin.says = { now: now + 1000, changed: now };
    await facade.follower.refresh();
    expect(facade.follower.current!.opened.manifest.generation).toBeGreaterThan(generation);
    origin.asked = [];
    origin.sent = 0;
    await facade.follower.refresh();
    expect(origin).toMatchObject({ asked: ['lookup/manifest'], sent: 0 });
  });

  it('lets a crowd wait and not run over the origin, nor stand in the way of what is new', async () => {
    const { url: crowded, facade: follower } = await served({ lanes: 4, waiting: 3 });
    origin.held = [];
    const statuses: number[] = [];
    // Far apart, so that no two want the same block of the index.
    const looks = Array.from({ length: 12 }, async (_, i) => {
      const id = ids[i * 150]!;
      const { status } = await fetch(`${crowded}/api/public/verify/proof/${id}`);
      statuses.push(status);
    });
    await expect.poll(() => statuses).toEqual([503, 503, 503, 503, 503]);
    expect(origin.held).toHaveLength(4);

    const later = origin.held;
    origin.held = null;
    await publishMore();
    await follower.follower.refresh();
    expect(follower.follower.refusal).toBeNull();
    expect(follower.follower.current!.opened.manifest.proofs).toBe(2001);
    later.forEach((release) => release());
    await Promise.all(looks);
    expect(statuses.slice(5)).toEqual(Array(7).fill(200));
  });

  it('asks again when a connection that was kept breaks under the request', async () => {
    for (const id of ids.slice(0, 5)) {
      origin.breaks = 1;
      expect(await look(id)).toBe(200);
    }
    expect(origin.breaks).toBe(0);
  });

  it('keeps of what it read no more than it may', async () => {
    const room = 40 * 1024;
    const source = httpSource(`http://127.0.0.1:${origin.port}`, { cacheBytes: room });
    const { url: base } = await snapshot.serve(snapshot.facade({ source }));
    const sweep = ids.slice(0, 200);
    const lookHere = async (id: string): Promise<void> => {
      expect((await fetch(`${base}/api/public/verify/proof/${id}`)).status).toBe(200);
    };
    for (const id of sweep) await lookHere(id);
    origin.asked = [];
    await lookHere(sweep.at(-1)!);
    expect(origin.asked).toEqual([]);
    await lookHere(sweep[0]!);
    expect(origin.asked).not.toEqual([]);
    const [wanted] = facade.follower.current!.opened.manifest.index_parts;
    const piece = await source.read({
      segment: wanted!.sha256,
      bytes: wanted!.bytes,
      offset: 0,
      length: 100,
    });
    // A part of a larger buffer would keep all of that.
    expect(piece.buffer.byteLength).toBe(100);
  });
});
