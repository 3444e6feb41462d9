import type { Facade } from '#api/public/facade';
import { unreadProblem } from '#api/public/http/unread-request';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { listen, type HttpServer } from '#runtime/http/server';
import { send, type Call, type Reply } from './send.js';
import { TestSnapshot } from './snapshot.js';

/** A facade behind a real server. */
export interface ServedFacade {
  facade: Facade;
  server: HttpServer;
  call(call: Call): Promise<Reply>;
}

/** A facade over a published registry, and facades for which things are not as they should be. */
export interface Facades {
  snapshot: TestSnapshot;
  good: ServedFacade;
  /** Has no snapshot. */
  empty: ServedFacade;
  /** Its snapshot is past its end. */
  expired: ServedFacade;
  /** Its snapshot is loaded, and nothing more can be read. */
  unreadable: ServedFacade;
  proof: string;
  revoked: string;
  denied: string;
  packageId: string;
  shareToken: string;
  close(): Promise<void>;
}

export async function openFacades(): Promise<Facades> {
  const snapshot = new TestSnapshot();
  const { registry } = snapshot;
  const proof = registry.addProof();
  const revoked = registry.addProof();
  const denied = registry.addProof({ effect: 'DENY' });
  registry.revoke(revoked);
  const packageId = registry.bundle([proof, revoked]);
  const shareToken = registry.share('proof', proof);
  registry.verify();
  await snapshot.publisher().runCycle();

  const late = new TestSnapshot();
  late.registry.addProof();
  late.registry.verify();
  await late.publisher().runCycle();
  const bare = new TestSnapshot();
  const cut = cutOff(directorySource(snapshot.directory));
  const facades = {
    snapshot,
    good: await serve(snapshot),
    empty: await serve(bare),
    expired: await serve(late),
    unreadable: await serve(snapshot, cut.source),
    proof,
    revoked,
    denied,
    packageId,
    shareToken,
    close: async () => {
      for (const one of [snapshot, late, bare]) await one.close();
    },
  };
  late.clock.at += 24 * 60 * 60 * 1000;
  cut.now();
  return facades;
}

async function serve(snapshot: TestSnapshot, source?: SnapshotSource): Promise<ServedFacade> {
  const facade = snapshot.facade(source === undefined ? {} : { source });
  await facade.follower.refresh();
  const server = await listenAs(snapshot, facade.handler);
  return { facade, server, call: (call) => send(server.url, { method: 'GET', ...call }) };
}

/** As the program listens; closed with the snapshot. */
export async function listenAs(
  snapshot: TestSnapshot,
  handler: Facade['handler'],
): Promise<HttpServer> {
  const server = await listen(handler, {
    host: '127.0.0.1',
    port: 0,
    answerUnread: unreadProblem,
  });
  snapshot.onClose(() => server.close(0));
  return server;
}

/** A source that fails from the moment on that it is told to. */
function cutOff(inner: SnapshotSource): { source: SnapshotSource; now: () => void } {
  let away = false;
  const there = (): void => {
    if (away) throw new Error('the disk is away');
  };
  const source: SnapshotSource = {
    ...inner,
    logFile: async (path) => {
      there();
      return inner.logFile(path);
    },
    read: (wanted) => {
      there();
      return inner.read(wanted);
    },
  };
  return { source, now: () => (away = true) };
}
