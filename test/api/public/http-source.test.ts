import type { IncomingMessage, ServerResponse } from 'node:http';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { beforeEach, describe, expect, it } from 'vitest';
import { httpSource } from '#api/public/snapshot/remote-source';
import type { PublicServer } from '#api/public/server';
import type { Publisher } from '#publisher/publisher';
import { serveLocally } from '../../fixtures/local-server.js';
import { useSnapshot } from '../../fixtures/use-registry.js';

const snapshot = useSnapshot();

/** A static file server with ETags, which records the requests that it gets. */
class Origin {
  asked: string[] = [];
  /** When not null, every file has this ETag. */
  etag: string | null = null;
  /** When not null, the server keeps the responses for map pages here, unsent. */
  held: (() => void)[] | null = null;
  /** Number of kept-alive connections that the server will break, each at its next request. */
  breaks = 0;
  /** When not null, answers every request except those for `elsewhere`, the target of a redirect. */
  respond: ((res: ServerResponse) => unknown) | null = null;
  /** Returns the bytes that the server sends in place of a file's content. */
  tamper: (path: string, bytes: Buffer) => Buffer = (_path, bytes) => bytes;
  private readonly used = new WeakSet<object>();

  serve(req: IncomingMessage, res: ServerResponse): void {
    const path = req.url!.slice(1);
    this.asked.push(path);
    if (this.breaks > 0 && this.used.has(req.socket)) {
      this.breaks--;
      req.socket.destroy();
      return;
    }
    this.used.add(req.socket);
    if (path === 'elsewhere') return void res.writeHead(200).end('a file');
    if (this.respond !== null) return void this.respond(res);
    if (this.held === null || !path.startsWith('map/')) this.answer(path, req, res);
    else this.held.push(() => this.answer(path, req, res));
  }

  private answer(path: string, req: IncomingMessage, res: ServerResponse): void {
    const file = join(snapshot.directory, path);
    if (statSync(file, { throwIfNoEntry: false })?.isFile() !== true) {
      res.writeHead(404).end();
      return;
    }
    const bytes = this.tamper(path, readFileSync(file));
    const etag = this.etag ?? `"${statSync(file).mtimeMs}-${bytes.length}"`;
    if (req.headers['if-none-match'] === etag) {
      res.writeHead(304).end();
      return;
    }
    res.writeHead(200, { ETag: etag, 'Content-Length': bytes.length }).end(bytes);
  }
}

let publisher: Publisher;
let origin: Origin;
let originUrl: string;
let publicServer: PublicServer;
let url: string;
let ids: string[];

beforeEach(async () => {
  publisher = snapshot.publisher();
  ids = snapshot.grow(2000);
  await publisher.runCycle();
  origin = new Origin();
  const server = await serveLocally((req, res) => origin.serve(req, res));
  snapshot.onClose(() => server.close());
  originUrl = server.url;
  publicServer = snapshot.publicServer({ source: httpSource(originUrl) });
  url = (await snapshot.serve(publicServer)).url;
});

const look = async (id: string): Promise<number> => {
  const response = await fetch(`${url}/api/public/verify/proof/${id}`);
  await response.arrayBuffer();
  return response.status;
};

const publishMore = () => snapshot.publishProof(publisher);

it.each<[string, (res: ServerResponse) => unknown, string]>([
  ['an error', (res) => res.writeHead(500).end(), 'the origin answered 500'],
  ['a redirect', (res) => res.writeHead(302, { Location: '/elsewhere' }).end(), 'answered 302'],
  ['too many bytes', (res) => res.writeHead(200).end(Buffer.alloc(2 ** 20 + 1)), 'is longer than'],
])('httpSource > throws for %s instead of returning a file or null', async (_, respond, why) => {
  const source = httpSource(originUrl);
  origin.respond = respond;
  await expect(source.location()).rejects.toThrow(why);
  await expect(source.logFile('tile/0/000')).rejects.toThrow(why);
  source.close();
});

describe('public API server over httpSource', () => {
  it('finds a new location document although the ETag has not changed', async () => {
    origin.etag = '"whole seconds"';
    await publishMore();
    await publicServer.poller.refresh();
    const { generation } = publicServer.poller.current!;
    await publishMore();
    await publicServer.poller.refresh();
    expect(publicServer.poller.current!.generation).toBeGreaterThan(generation);
  });

  it('limits concurrent requests to the origin without delaying the poller', async () => {
    publicServer = snapshot.publicServer({
      source: httpSource(originUrl, { concurrency: 4, maxQueue: 3 }),
    });
    const { url: crowded } = await snapshot.serve(publicServer);
    const cosigned = () => origin.asked.filter((path) => path === 'cosigned-checkpoint');
    // Each of the two servers requests this file once, and the server's poller does not wait for the answer.
    await expect.poll(cosigned).toHaveLength(2);
    origin.held = [];
    const statuses: number[] = [];
    // These ids are far apart, so each id is on a different page.
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
    await publicServer.poller.refresh();
    expect(publicServer.poller.rejection).toBeNull();
    expect(publicServer.poller.current!.log.size).toBeGreaterThan(2001);
    later.forEach((release) => release());
    await Promise.all(looks);
    expect(statuses.slice(5)).toEqual(Array(7).fill(200));
  });

  it('retries when a keep-alive connection breaks during the request', async () => {
    for (const at of [0, 400, 800, 1200, 1600]) {
      const id = ids[at]!;
      origin.breaks = 1;
      expect(await look(id)).toBe(200);
    }
    expect(origin.breaks).toBe(0);
  });

  it('limits the memory that cached pages use', async () => {
    const source = httpSource(originUrl);
    const pageMemory = { leafBytes: 100 * 1024, upperBytes: 100 * 1024 };
    const { url: base } = await snapshot.serve(snapshot.publicServer({ source, pageMemory }));
    const sweep = ids.filter((_, at) => at % 150 === 0);
    const lookHere = async (id: string): Promise<void> => {
      expect((await fetch(`${base}/api/public/verify/proof/${id}`)).status).toBe(200);
    };
    for (const id of sweep) await lookHere(id);
    origin.asked = [];
    await lookHere(sweep.at(-1)!);
    expect(origin.asked).toEqual([]);
    await lookHere(sweep[0]!);
    expect(origin.asked).not.toEqual([]);
  });
});
