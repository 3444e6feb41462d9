import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, it, vi } from 'vitest';
import { Checkpoints } from '#api/public/log/checkpoints';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { cosign } from '#protocol/cosignature';
import { proveState } from '#protocol/evidence/verify';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, parseVkey } from '#protocol/note';
import { readLog } from '#protocol/offline/trust';
import { checkQuorum, parsePolicy } from '#protocol/tlog-policy';
import { parseTlogProof } from '#protocol/checkpoint';
import { addLog, openCosignedHeads } from '#programs/witness/heads';
import { addCheckpoint, type WitnessOptions } from '#programs/witness/witness';
import { Cosigner } from '#publisher/cosigner';
import { Leadership } from '#publisher/registry/lease';
import { SnapshotReader, SnapshotWriter } from '#publisher/store/published-files';
import { DirectoryStore } from '#runtime/store/directory';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { logger } from '#runtime/process/log';
import { openCheckpoint } from '../fixtures/checkpoints.js';
import { serveLocally } from '../fixtures/local-server.js';
import { ORIGIN, testKey } from '../fixtures/snapshot.js';
import { useSnapshot } from '../fixtures/use-registry.js';

const snapshot = useSnapshot();

/** A real witness behind a server that can be down, delay answers or replace them. */
async function openWitness(name: string) {
  const key = testKey();
  await addLog(join(snapshot.directory, name), ORIGIN);
  const heads = await openCosignedHeads(join(snapshot.directory, name), () => undefined);
  const signer = noteSigner(nativeSha256, name, key, COSIGNATURE_TYPE);
  const options: WitnessOptions = {
    signer,
    logs: new Map([[ORIGIN, [parseVkey(snapshot.logVkey)]]]),
    heads,
    clock: snapshot.clock,
  };
  const state = {
    isDown: false,
    until: Promise.resolve(),
    requests: 0,
    /** Returns the body to send instead of the cosignature. */
    lie: null as ((line: string, note: string) => string) | null,
  };
  const server = await serveLocally((req, res) => {
    const chunks: Buffer[] = [];
    req.on('data', (chunk: Buffer) => chunks.push(chunk));
    req.on('end', () => {
      state.requests += 1;
      void state.until.then(async () => {
        if (state.isDown) return void res.writeHead(500).end();
        const request = Buffer.concat(chunks);
        const { status, body, type = 'text/plain' } = await addCheckpoint(options, request);
        const note = request.toString().replace(/^.*?\n\n/su, '');
        const sent = status === 200 && state.lie !== null ? state.lie(body, note) : body;
        res.writeHead(status, { 'Content-Type': type }).end(sent);
      });
    });
  });
  snapshot.onClose(async () => {
    await server.close();
    await heads.unlock();
  });
  const vkey = formatVkey(nativeSha256, name, key.publicKey, COSIGNATURE_TYPE);
  return { state, signer, line: `witness ${name} ${vkey} ${server.url}/\n` };
}

type TestWitness = Awaited<ReturnType<typeof openWitness>>;
let witnesses: TestWitness[];
let policyText: string;
let answers: string[];
const onAnswer = (name: string, outcome: string) => void answers.push(`${name} ${outcome}`);
const open = (overrides: Parameters<typeof snapshot.publisher>[0] = {}) =>
  snapshot.publisher({ witnesses: { policy: parsePolicy(policyText), onAnswer }, ...overrides });
/** Delays the answers of all witnesses until the returned function is called. */
function holdAnswers(): () => void {
  let release = (): void => undefined;
  const until = new Promise<void>((resolve) => (release = resolve));
  for (const { state } of witnesses) state.until = until;
  return release;
}

beforeEach(async () => {
  answers = [];
  witnesses = [await openWitness('w1'), await openWitness('w2'), await openWitness('w3')];
  policyText = `${witnesses.map(({ line }) => line).join('')}group g 2 w1 w2 w3\nquorum g\n`;
});
afterEach(() => witnesses.forEach(({ state }) => (state.isDown = true)));

function published() {
  const file = join(snapshot.directory, 'cosigned-checkpoint');
  if (!existsSync(file)) return null;
  const note = readFileSync(file, 'utf8');
  const { size } = openCheckpoint(note, snapshot.logVkey, ORIGIN);
  const { isMet, cosigned } = checkQuorum(note, parsePolicy(policyText), nativeVerify);
  return { size, isMet, by: cosigned.map(({ witness }) => witness.name) };
}

it('cosigner > publishes each checkpoint at once, and again with the cosignatures', async () => {
  const publisher = open();
  const release = holdAnswers();
  snapshot.grow(3);
  await publisher.runCycle();
  const { size } = (await snapshot.published()).opened.checkpoint;
  expect(published()).toBeNull();
  release();
  await expect.poll(published).toEqual({ size, isMet: true, by: ['w1', 'w2', 'w3'] });
  // The next cycle requests no cosignatures, because the present cosignatures are less than a
  // minute old.
  const { requests } = witnesses[0]!.state;
  await publisher.runCycle();
  snapshot.grow(3);
  await publisher.runCycle();
  const grown = (await snapshot.published()).opened.checkpoint.size;
  expect(grown).toBeGreaterThan(size);
  await expect.poll(published).toMatchObject({ size: grown, isMet: true });
  expect(witnesses[0]!.state.requests).toBe(requests + 1);
  await expect.poll(() => publisher.quorumAgeMs()).toBe(0);
  snapshot.clock.at += 61_000;
  expect(publisher.quorumAgeMs()).toBe(61_000);
  await publisher.runCycle();
  await expect.poll(() => publisher.quorumAgeMs()).toBe(0);
});

it('cosigner > renews cosignatures although the clock is set an hour back', async () => {
  let elapsed = 0;
  const publisher = open({ monotonic: { now: () => elapsed } });
  snapshot.grow(3);
  await publisher.runCycle();
  await expect.poll(published).toMatchObject({ isMet: true });
  const { requests } = witnesses[0]!.state;
  snapshot.clock.at -= 3_600_000;
  elapsed += 61_000;
  expect(publisher.quorumAgeMs()).toBe(61_000);
  await publisher.runCycle();
  await expect.poll(() => witnesses[0]!.state.requests).toBe(requests + 1);
  await expect.poll(() => publisher.quorumAgeMs()).toBe(0);
});

it('cosigner > leaves no signal behind: Node keeps a reference to each signal derived from a living one', async () => {
  const derived = vi.spyOn(AbortSignal, 'any');
  snapshot.onClose(() => derived.mockRestore());
  const publisher = open();
  const sourcesOfRound = async (): Promise<AbortSignal[]> => {
    answers = [];
    snapshot.grow(3);
    await publisher.runCycle();
    await expect.poll(() => answers.length).toBe(3);
    return derived.mock.calls.splice(0).flatMap(([sources]) => [...sources]);
  };
  const first = await sourcesOfRound();
  const second = await sourcesOfRound();
  expect(second.length).toBeGreaterThan(0);
  expect(second.filter((source) => first.includes(source))).toEqual([]);
});

it('cosigner > needs only the quorum, and learns which tree size a witness has cosigned', async () => {
  for (const { state } of witnesses.slice(1)) state.isDown = true;
  snapshot.grow(3);
  const first = open();
  await first.runCycle();
  await expect.poll(() => answers.length).toBe(3);
  await first.close();
  expect(published()).toBeNull();
  for (const { state } of witnesses.slice(1)) state.isDown = false;
  answers = [];
  await first.runCycle();
  await expect.poll(() => published()?.by.length).toBe(3);
  await first.close();
  witnesses[1]!.state.isDown = true;
  snapshot.grow(3);
  // A new publisher learns the sizes of the witnesses from their 409 responses.
  await open().runCycle();
  await expect.poll(published).toMatchObject({ isMet: true, by: ['w1', 'w3'] });
  expect(answers.filter((one) => one.endsWith('failed'))).toEqual(['w2 failed']);
});

it('cosigner > finds a quorum for a log that grows faster than its witnesses answer', async () => {
  const release = holdAnswers();
  const publisher = open();
  snapshot.grow(3);
  await publisher.runCycle();
  const { size } = (await snapshot.published()).opened.checkpoint;
  snapshot.grow(3);
  await publisher.runCycle();
  release();
  await expect.poll(published).toMatchObject({ size, isMet: true });
});

setFlagsFromString('--expose-gc');
/** A request to a silent witness must time out even if a garbage collection runs during the request. */
const collectGarbage = runInNewContext('gc') as () => void;

it('cosigner > continues without a witness that never answers', async () => {
  witnesses[2]!.state.until = new Promise(() => undefined);
  const publisher = open();
  snapshot.grow(3);
  await publisher.runCycle();
  const { size } = (await snapshot.published()).opened.checkpoint;
  await expect.poll(published).toEqual({ size, isMet: true, by: ['w1', 'w2'] });
  snapshot.grow(3);
  const publishedNext = async () => {
    collectGarbage();
    await publisher.runCycle();
    return published();
  };
  await publisher.runCycle();
  const { size: grown } = (await snapshot.published()).opened.checkpoint;
  expect(grown).toBeGreaterThan(size);
  await expect.poll(publishedNext).toEqual({ size: grown, isMet: true, by: ['w1', 'w2'] });
});

it.each<[lie: string, body: (line: string, note: string) => string]>([
  ['text', () => 'welcome'],
  ['a cosignature that does not verify', (line) => line.replace(/.{8}\n$/u, 'AAAAAAAA\n')],
  ['a cosignature of another key', (line) => line.replace('w1', 'w9')],
  [
    'a cosignature of a longer text',
    (_, note) => `more\n\n${cosign(`${note}more\n`, witnesses[0]!.signer, 1_700_000_000)}`,
  ],
])(
  'cosigner > neither counts nor publishes a line of a witness that answers with %s',
  async (_, body) => {
    witnesses[0]!.state.lie = body;
    snapshot.grow(3);
    await open().runCycle();
    await expect
      .poll(() => answers.toSorted())
      .toEqual(['w1 failed', 'w2 cosigned', 'w3 cosigned']);
    await expect.poll(published).toMatchObject({ isMet: true, by: ['w2', 'w3'] });
    const file = readFileSync(join(snapshot.directory, 'cosigned-checkpoint'), 'utf8');
    const own = parseTlogProof((await snapshot.published()).opened.location.tlog_proof).checkpoint;
    const added = file.slice(own.length);
    expect(added).toMatch(/^\u2014 w2 \S+\n\u2014 w3 \S+\n$/u);
  },
);

it('cosigner > never replaces a newer checkpoint by an older one', async () => {
  const publisher = open();
  snapshot.grow(3);
  await publisher.runCycle();
  const older = (await snapshot.published()).opened;
  await expect.poll(() => published()?.by.length).toBe(3);
  snapshot.grow(3);
  await publisher.runCycle();
  const newer = (await snapshot.published()).opened.checkpoint.size;
  await expect.poll(published).toMatchObject({ size: newer, by: ['w1', 'w2', 'w3'] });
  const log = [parseVkey(snapshot.logVkey)] as const;
  const store = new DirectoryStore(snapshot.directory);
  const late = new Cosigner({
    policy: parsePolicy(`${(await openWitness('w4')).line}quorum w4\n`),
    reader: new SnapshotReader(store, log),
    writer: new SnapshotWriter(store, () => Promise.resolve()),
    leadership: new Leadership([]),
    monotonic: snapshot.clock,
    log: logger('publisher', 'silent'),
    onAnswer,
  });
  late.submit(parseTlogProof(older.location.tlog_proof).checkpoint, older.checkpoint.size);
  await expect.poll(() => answers).toContain('w4 cosigned');
  await late.stop();
  expect(published()).toMatchObject({ size: newer, by: ['w1', 'w2', 'w3'] });
});

it('cosigner > stores no cosignature after another publisher took the lease', async () => {
  let isHeld = true;
  const lease = {
    take: () => Promise.resolve(isHeld),
    held: () => Promise.resolve(isHeld),
    release: () => Promise.resolve(),
  };
  const release = holdAnswers();
  const publisher = open({ leases: [lease] });
  snapshot.grow(3);
  await publisher.runCycle();
  isHeld = false;
  release();
  await expect.poll(() => answers.length).toBe(3);
  await publisher.close();
  expect(published()).toBeNull();
});

function openCheckpoints(changes: Partial<SnapshotSource> = {}): Checkpoints {
  const log = [parseVkey(snapshot.logVkey)] as const;
  const source = { ...directorySource(snapshot.directory), ...changes };
  return new Checkpoints(source, log, snapshot.clock);
}

it('public API > serves the cosigned checkpoint, and tlog-proofs and evidence under it', async () => {
  const publisher = open();
  const ids = snapshot.grow(3);
  await publisher.runCycle();
  await expect.poll(() => published()?.by.length).toBe(3);
  const server = await snapshot.serve(snapshot.publicServer());
  const get = async (path: string) => (await fetch(`${server.url}/log/${path}`)).text();
  const isMet = (note: string) =>
    checkQuorum(note, parsePolicy(policyText), nativeVerify).cosigned.length === 3;
  expect(isMet(await get('checkpoint'))).toBe(true);
  expect(isMet(parseTlogProof(await get('proof/1')).checkpoint)).toBe(true);
  const [identifier] = ids;
  const evidence = await fetch(`${server.url}/api/public/evidence/${identifier}`);
  const log = readLog(nativeSha256, {
    vkey: snapshot.logVkey,
    origin: ORIGIN,
    policy: policyText,
  })!;
  const proved = proveState({ sha256: nativeSha256, verify: nativeVerify }, await evidence.text(), {
    identifier: identifier!,
    log,
    now: snapshot.clock.now(),
  });
  expect(proved.witnesses).toEqual(['w1', 'w2', 'w3']);
  // A cache must not keep the evidence from before the cosignatures.
  const current = snapshot.publicServer();
  await current.poller.refresh();
  const uncosigned = openCheckpoints({ logFile: () => Promise.resolve(null) });
  const tags = [uncosigned, openCheckpoints()].map(async (checkpoints) => {
    const { tag } = await checkpoints.snapshotProof(current.poller.current!);
    return evidence.headers.get('etag')!.includes(tag);
  });
  expect(await Promise.all(tags)).toEqual([false, true]);

  // The origin could keep an old cosigned checkpoint, so a server with a newer snapshot serves the
  // old checkpoint only for minutes.
  for (const { state } of witnesses) state.isDown = true;
  const { size } = (await snapshot.published()).opened.checkpoint;
  snapshot.grow(3);
  await publisher.runCycle();
  const checkpoints = openCheckpoints();
  const publicServer = snapshot.publicServer();
  await publicServer.poller.refresh();
  const served = async (leaf?: number) =>
    (await checkpoints.newest(publicServer.poller.current!, leaf)).checkpoint.size;
  const grown = (await snapshot.published()).opened.checkpoint.size;
  expect(grown).toBeGreaterThan(size);
  expect([await served(), await served(size)]).toEqual([size, grown]);
  snapshot.clock.at += 5 * 60_000 + 1;
  expect(await served()).toBe(grown);
  // A server that starts now does not serve the old checkpoint, either.
  const restarted = openCheckpoints();
  const { checkpoint } = await restarted.newest(publicServer.poller.current!);
  expect(checkpoint.size).toBe(grown);
});

it('public API > serves the last cosigned checkpoint while the newest is ahead of its snapshot', async () => {
  const publisher = open();
  const publicServer = snapshot.publicServer();
  const publish = async () => {
    snapshot.clock.at += 5_000;
    snapshot.grow(3);
    await publisher.runCycle();
    const { size } = (await snapshot.published()).opened.checkpoint;
    await expect.poll(published).toMatchObject({ size, isMet: true });
    return size;
  };
  await publish();
  const server = await snapshot.serve(publicServer);
  const served = async () => {
    const note = await (await fetch(`${server.url}/log/checkpoint`)).text();
    return openCheckpoint(note, snapshot.logVkey, ORIGIN).size;
  };
  await served();
  const last = await publish();
  await publicServer.poller.refresh();
  const newest = await publish();
  expect(newest).toBeGreaterThan(last);
  expect(await served()).toBe(last);
});

it('public API > serves no cosigned checkpoint that is forged, newer than its snapshot or too old', async () => {
  const file = join(snapshot.directory, 'cosigned-checkpoint');
  const publisher = open();
  const publicServer = snapshot.publicServer();
  const publish = async () => {
    snapshot.grow(3);
    await publisher.runCycle();
    const { opened } = await snapshot.published();
    const { checkpoint } = opened;
    await expect.poll(published).toMatchObject({ size: checkpoint.size, by: ['w1', 'w2', 'w3'] });
    await publicServer.poller.refresh();
    const own = parseTlogProof(opened.location.tlog_proof).checkpoint;
    return { snapshot: publicServer.poller.current!, own, cosigned: readFileSync(file, 'utf8') };
  };
  const before = await publish();
  const now = await publish();
  expect((await openCheckpoints().newest(before.snapshot)).note).toBe(before.own);

  const server = openCheckpoints();
  expect((await server.newest(now.snapshot)).note).toBe(now.cosigned);
  writeFileSync(file, before.cosigned);
  snapshot.clock.at += 1_000;
  expect((await server.newest(now.snapshot)).note).toBe(now.cosigned);

  const [, , root] = now.cosigned.split('\n');
  writeFileSync(file, now.cosigned.replace(root!, before.cosigned.split('\n')[2]!));
  expect((await openCheckpoints().newest(now.snapshot)).note).toBe(now.own);
});
