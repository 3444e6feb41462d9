import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPairSync, sign } from 'node:crypto';
import { createFacade, type Facade } from '#api/public/facade';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { toBase64Url, toHex, utf8 } from '#protocol/bytes';
import { keyEntryBytes, proofEntryBytes, statusEntryBytes } from '#protocol/entries';
import type { VerdictInHistory } from '#protocol/history';
import { jwkThumbprint } from '#protocol/keys';
import { CompactRange, leafHash } from '#protocol/merkle';
import { formatVkey } from '#protocol/note';
import type { ArtifactKind } from '#protocol/status';
import { extendTiles, tilesForAppend, type Tile } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { createPublisher, type Publisher, type PublisherContext } from '#publisher/publisher';
import type {
  ShareChange,
  Leaf,
  LeafVerdict,
  PackageRow,
  ProofLeaf,
  RegistryView,
  ShareTarget,
} from '#publisher/registry/registry-view';
import { nativeSha256, nativeVerify } from '#runtime/crypto/node';
import { listen, type HttpServer } from '#runtime/http/server';
import { logger, type Logger } from '#runtime/process/log';
import { startNginx, type TestNginx } from './nginx.js';
import { servedFrom, sourceThroughNginx } from './served-from.js';

export const ORIGIN = 'test.example/log';
export const SNAPSHOT_NAME = 'test.example/snapshot';
export const START = Date.parse('2026-11-20T12:00:00.000Z');
const sha256 = nativeSha256;

export interface TestKey {
  publicKey: Uint8Array;
  sign(message: Uint8Array): Uint8Array;
}

export function testKey(): TestKey {
  const { privateKey, publicKey } = generateKeyPairSync('ed25519');
  const der = publicKey.export({ format: 'der', type: 'spki' });
  return {
    publicKey: new Uint8Array(der.subarray(der.length - 32)),
    sign: (message) => sign(null, message, privateKey),
  };
}

/** A clock that stands still until it is told to move. */
export class TestClock {
  constructor(public at = START) {}
  now(): number {
    return this.at;
  }
}

/** A proof id whose time part is `at` and whose rest is drawn from `seed`. */
export function proofIdAt(at: number, seed: string | number): string {
  const random = toHex(sha256(utf8(`proof ${seed}`)));
  return `${at.toString(16).padStart(12, '0')}7${random.slice(0, 3)}8${random.slice(3, 18)}`;
}

/** The registry as the publisher sees it, in memory: what the sql-backed one would answer. */
export class MemoryRegistry implements RegistryView {
  readonly all: Leaf[] = [];
  private tiles = new Map<string, Tile>();
  private verdictRows: ({ firstIndex: number; lastIndex: number } & VerdictInHistory)[] = [];
  private verdictId = 0;
  private verified: { treeSize: number; root: Uint8Array; verdictId: number } | null = null;
  endedLogs: string[] = [];
  checkpoints: { treeSize: number; root: Uint8Array; note: string }[] = [];
  readonly shareChanges: ShareChange[] = [];
  readonly shares = new Map<string, ShareTarget | null>();
  readonly bundles: PackageRow[] = [];
  /** When the verifier last looked at what may be over; undefined: now, whenever that is. */
  verifierCheckedAt: number | null | undefined;
  /** Called before every question; a test makes it throw. */
  asked: (what: keyof RegistryView) => void = () => undefined;

  constructor(private readonly clock: TestClock = new TestClock()) {
    this.append({ kind: 'other', leafIndex: 0, bytes: keyEntry('activate') });
  }

  addProof(overrides: Partial<Omit<ProofLeaf, 'kind' | 'leafIndex'>> = {}): string {
    const leafIndex = this.all.length;
    const acceptedAt = overrides.acceptedAt ?? this.clock.now() + leafIndex;
    const leaf: ProofLeaf = {
      kind: 'proof',
      leafIndex,
      proofId: proofIdAt(acceptedAt, leafIndex),
      aepHash: toHex(sha256(utf8(`aep ${leafIndex}`))),
      proofRecordHash: toHex(sha256(utf8(`record ${leafIndex}`))),
      effect: 'ADMIT',
      isOutcome: false,
      environment: 'sandbox',
      keyId: AEP_KEY_ID,
      ...overrides,
      acceptedAt,
    };
    this.append(leaf);
    return leaf.proofId;
  }

  addProofs(count: number): string[] {
    return Array.from({ length: count }, () => this.addProof());
  }

  revoke(proofId: string, kind: ArtifactKind = 'proof'): void {
    const bytes = statusEntryBytes({
      proof_id: proofId,
      artifact_kind: kind,
      reason_hash: 'a'.repeat(64),
      time: formatTime(this.clock.now()),
    });
    this.append({ kind: 'other', leafIndex: this.all.length, bytes });
  }

  addKeyEntry(change: 'retire' | 'compromise', fromIndex?: number): void {
    this.append({
      kind: 'other',
      leafIndex: this.all.length,
      bytes: keyEntry(change, fromIndex),
    });
  }

  /** The verifier goes over everything that was appended. */
  verify(): void {
    const from = this.verified?.treeSize ?? 0;
    const treeSize = this.all.length;
    this.verified = { treeSize, root: this.root(), verdictId: ++this.verdictId };
    if (from === treeSize) return;
    const row = { verdictId: this.verdictId, firstIndex: from, lastIndex: treeSize - 1 };
    const seen = { treeSize, verifiedAt: this.clock.now() };
    // What was judged before is what the verifier found when it came by.
    const judged = this.verdictRows.filter(({ firstIndex }) => firstIndex >= from);
    for (const single of judged) Object.assign(single, seen);
    const found = { outcome: 'pass', expired: [], failedChecks: [] } as const;
    this.verdictRows.push({ ...row, ...seen, ...found, frontier: true });
  }

  /** The verifier changes its mind about one leaf. */
  judge(
    proofId: string,
    verdict: Partial<
      Pick<VerdictInHistory, 'outcome' | 'expired' | 'verifiedAt' | 'failedChecks'>
    > = {},
  ): void {
    const leafIndex = this.all.findIndex(
      (leaf) => leaf.kind === 'proof' && leaf.proofId === proofId,
    );
    this.verdictRows.push({
      verdictId: ++this.verdictId,
      frontier: false,
      firstIndex: leafIndex,
      lastIndex: leafIndex,
      treeSize: this.verified?.treeSize ?? 0,
      outcome: 'pass',
      expired: [],
      verifiedAt: this.clock.now(),
      failedChecks: verdict.outcome === 'fail' ? ['aep_hash'] : [],
      ...verdict,
    });
  }

  /** A new token for an artifact of a proof, or for a package. */
  share(artifactKind: ArtifactKind | 'package', id: string): string {
    const seed = sha256(utf8(`token ${this.shares.size}`));
    const token = `share_${toBase64Url(seed)}`;
    const target: ShareTarget =
      artifactKind === 'package' ? { artifactKind, packageId: id } : { artifactKind, proofId: id };
    this.changeShare(token, target);
    return token;
  }

  /** The token is revoked, or over. */
  endShare(token: string): void {
    this.changeShare(token, null);
  }

  private changeShare(token: string, target: ShareTarget | null): void {
    const tokenHash = toHex(sha256(utf8(token)));
    this.shares.set(tokenHash, target);
    this.shareChanges.push({ changeNo: this.shareChanges.length + 1, tokenHash });
  }

  /** A package of the proofs, in their order. */
  bundle(proofIds: string[]): string {
    const packageId = `pkg_${proofIdAt(this.clock.now(), `package ${this.shareChanges.length}`)}`;
    const membersHash = toHex(sha256(utf8(JSON.stringify(proofIds))));
    this.bundles.push({ packageId, proofIds, membersHash });
    this.shareChanges.push({ changeNo: this.shareChanges.length + 1, packageId });
    return packageId;
  }

  /** Forgets everything from leaf `size` on, as a restored backup would. */
  truncate(size: number): void {
    const kept = this.all.splice(0, size);
    this.all.length = 0;
    this.tiles = new Map();
    this.checkpoints = this.checkpoints.filter((checkpoint) => checkpoint.treeSize <= size);
    this.verified = null;
    this.verdictRows = this.verdictRows.filter((row) => !row.frontier && row.lastIndex < size);
    kept.forEach((leaf) => this.append(leaf));
    this.verify();
  }

  /** Forgets the last verdict, as a replica that lagged behind would. */
  loseVerdict(): void {
    const lost = this.verdictRows.pop();
    this.verdictId = lost === undefined ? 0 : lost.verdictId - 1;
  }

  root(): Uint8Array {
    const range = new CompactRange(sha256);
    for (const leaf of this.all) range.append(leafHash(sha256, entryOf(leaf)));
    return range.root();
  }

  corruptTile(level: number, index: number, byte: number): void {
    this.tiles.get(`${level}/${index}`)!.hashes[byte]! ^= 1;
  }

  /** Makes the leaf tile agree with a row that was changed, as a careful intruder would. */
  fitTileToRow(leafIndex: number): void {
    const tile = this.tiles.get(`0/${Math.floor(leafIndex / 256)}`)!;
    tile.hashes.set(leafHash(sha256, entryOf(this.all[leafIndex]!)), (leafIndex % 256) * 32);
  }

  private append(leaf: Leaf): void {
    const size = this.all.length;
    this.all.push(leaf);
    const edge = tilesForAppend(size, 1).map(({ level, index }) =>
      this.tiles.get(`${level}/${index}`)!,
    );
    const touched = extendTiles(sha256, size, [leafHash(sha256, entryOf(leaf))], edge);
    for (const tile of touched) this.tiles.set(`${tile.level}/${tile.index}`, tile);
  }

  private covering(leafIndex: number): VerdictInHistory[] {
    if (this.verified === null || leafIndex >= this.verified.treeSize) return [];
    return this.verdictRows
      .filter(({ firstIndex, lastIndex }) => firstIndex <= leafIndex && leafIndex <= lastIndex)
      .map(({ firstIndex: _first, lastIndex: _last, ...row }) => row)
      .sort(
        (a, b) =>
          a.treeSize - b.treeSize ||
          Number(b.frontier) - Number(a.frontier) ||
          a.verdictId - b.verdictId,
      );
  }

  private async answer<T>(what: keyof RegistryView, value: () => T): Promise<T> {
    await Promise.resolve();
    this.asked(what);
    return value();
  }

  verifiedPrefix() {
    return this.answer('verifiedPrefix', () => this.verified);
  }
  latestCheckpoint() {
    return this.answer('latestCheckpoint', () => this.checkpoints.at(-1) ?? null);
  }
  hasEnded(origin: string) {
    return this.answer('hasEnded', () => this.endedLogs.includes(origin));
  }
  insertCheckpoint(checkpoint: Parameters<RegistryView['insertCheckpoint']>[0]) {
    return this.answer('insertCheckpoint', () => {
      const { previous, ...row } = checkpoint;
      if ((this.checkpoints.at(-1)?.treeSize ?? 0) !== previous) return false;
      this.checkpoints.push(row);
      return true;
    });
  }
  tile(level: number, index: number) {
    return this.answer('tile', () => this.tiles.get(`${level}/${index}`)?.hashes ?? null);
  }
  leafHash(leafIndex: number) {
    return this.answer('leafHash', () => {
      const at = (leafIndex % 256) * 32;
      return (
        this.tiles.get(`0/${Math.floor(leafIndex / 256)}`)?.hashes.subarray(at, at + 32) ?? null
      );
    });
  }
  leaves(from: number, to: number) {
    return this.answer('leaves', () => this.all.slice(from, to));
  }
  proofsAt(leafIndexes: number[]) {
    return this.answer('proofsAt', () =>
      leafIndexes.flatMap((leafIndex) => {
        const leaf = this.all[leafIndex];
        return leaf?.kind === 'proof' ? [leaf] : [];
      }),
    );
  }
  statusEntries(from: number, to: number) {
    return this.answer('statusEntries', () => this.others('"type":"status"', from, to));
  }
  statusEntriesOf(proofIds: string[], size: number) {
    return this.answer('statusEntriesOf', () =>
      this.others('"type":"status"', 0, size).filter(({ body }) =>
        proofIds.some((proofId) => Buffer.from(body).includes(proofId)),
      ),
    );
  }
  keyEntries() {
    return this.answer('keyEntries', () => this.others('"type":"key"', 0, this.all.length));
  }
  verdictsForRange(from: number, to: number) {
    return this.answer('verdictsForRange', () =>
      this.inForce(Array.from({ length: to - from }, (_, i) => from + i)),
    );
  }
  verdictHistories(leafIndexes: number[]) {
    return this.answer('verdictHistories', () => {
      const histories = leafIndexes.map((leaf) => [leaf, this.covering(leaf)] as const);
      return new Map(histories.filter(([, rows]) => rows.length > 0));
    });
  }
  verdictChangesSince(verdictId: number, limit: number) {
    return this.answer('verdictChangesSince', () =>
      this.verdictRows
        .filter((row) => row.verdictId > verdictId && !row.frontier)
        .map((row) => ({ ...row, leafIndex: row.firstIndex, keyId: this.keyOf(row.firstIndex) }))
        .slice(0, limit),
    );
  }

  lastVerdictId() {
    return this.answer('lastVerdictId', () => this.verdictId);
  }
  expiryScanDoneAt() {
    return this.answer('expiryScanDoneAt', () =>
      this.verifierCheckedAt === undefined ? this.clock.now() : this.verifierCheckedAt,
    );
  }
  shareChangesSince(changeNo: number, limit: number) {
    return this.answer('shareChangesSince', () =>
      this.shareChanges.filter((change) => change.changeNo > changeNo).slice(0, limit),
    );
  }
  sharesNow(tokenHashes: string[]) {
    return this.answer(
      'sharesNow',
      () => new Map(tokenHashes.map((hash) => [hash, this.shares.get(hash) ?? null])),
    );
  }
  packages(packageIds: string[]) {
    return this.answer('packages', () =>
      this.bundles.filter(({ packageId }) => packageIds.includes(packageId)),
    );
  }
  packagesWith(proofIds: string[]) {
    return this.answer('packagesWith', () =>
      this.bundles
        .filter((bundle) => bundle.proofIds.some((id) => proofIds.includes(id)))
        .map(({ packageId }) => packageId),
    );
  }

  private inForce(leafIndexes: number[]): Map<number, LeafVerdict> {
    const found = new Map<number, LeafVerdict>();
    for (const leafIndex of leafIndexes) {
      const verdict = this.covering(leafIndex).at(-1);
      if (verdict === undefined) continue;
      const { outcome, expired, verifiedAt, frontier } = verdict;
      found.set(leafIndex, { outcome, expired, verifiedAt, own: !frontier });
    }
    return found;
  }

  private keyOf(leafIndex: number): string | null {
    const leaf = this.all[leafIndex];
    return leaf?.kind === 'proof' ? leaf.keyId : null;
  }

  private others(mark: string, from: number, to: number) {
    return this.all.slice(from, to).flatMap((leaf) => {
      if (leaf.kind !== 'other' || !Buffer.from(leaf.bytes).includes(mark)) return [];
      return [{ leafIndex: leaf.leafIndex, body: leaf.bytes }];
    });
  }
}

const AEP_KEY = testKey();
export const AEP_KEY_ID = jwkThumbprint(sha256, AEP_KEY.publicKey);

function keyEntry(change: 'activate' | 'retire' | 'compromise', fromIndex?: number): Uint8Array {
  return keyEntryBytes({
    key_id: AEP_KEY_ID,
    public_key: toBase64Url(AEP_KEY.publicKey),
    change,
    ...(fromIndex === undefined ? {} : { from_index: fromIndex }),
    time: formatTime(START),
  });
}

export function entryOf(leaf: Leaf): Uint8Array {
  if (leaf.kind === 'other') return leaf.bytes;
  return proofEntryBytes({
    proof_id: leaf.proofId,
    aep_hash: leaf.aepHash,
    proof_record_hash: leaf.proofRecordHash,
    time: formatTime(leaf.acceptedAt),
  });
}

/** A registry, a publisher and a directory between them and the public. */
export class TestSnapshot {
  readonly clock = new TestClock();
  readonly registry = new MemoryRegistry(this.clock);
  readonly directory = mkdtempSync(join(tmpdir(), 'svc-snapshot-'));
  readonly logKey = testKey();
  readonly snapshotKey = testKey();
  readonly logVkey = formatVkey(sha256, ORIGIN, this.logKey.publicKey);
  readonly snapshotVkey = formatVkey(sha256, SNAPSHOT_NAME, this.snapshotKey.publicKey);
  private readonly closers: (() => unknown)[] = [];
  /** The one that its facades are fed from, if they are. */
  nginx: Promise<TestNginx> | null = null;

  publisher(overrides: Partial<PublisherContext> = {}): Publisher {
    const publisher = createPublisher({
      registry: this.registry,
      directory: this.directory,
      origin: ORIGIN,
      snapshotName: SNAPSHOT_NAME,
      logKey: this.logKey,
      snapshotKey: this.snapshotKey,
      sha256,
      verify: nativeVerify,
      clock: this.clock,
      log: logger('publisher', 'silent'),
      snapshotTtlMs: 15 * 60 * 1000,
      recentLookupLimit: 100_000,
      ...overrides,
    });
    this.closers.push(() => publisher.close());
    return publisher;
  }

  /** Reads the directory, or fetches it from an nginx that serves it: see served-from.ts. */
  source(): SnapshotSource {
    if (servedFrom() === 'directory') return directorySource(this.directory);
    if (this.nginx === null) {
      const nginx = startNginx(this.directory);
      this.nginx = nginx;
      this.closers.push(async () => (await nginx).close());
    }
    return sourceThroughNginx(this.nginx);
  }

  facade(
    overrides: {
      source?: SnapshotSource;
      recentLookupLimit?: number;
      publicUrl?: string;
      log?: Logger;
    } = {},
  ): Facade {
    const { source, ...rest } = overrides;
    const facade = createFacade({
      snapshotSource: source ?? this.source(),
      logVkey: this.logVkey,
      snapshotVkey: this.snapshotVkey,
      clock: this.clock,
      log: logger('facade', 'silent'),
      ...rest,
    });
    this.closers.push(() => facade.close());
    return facade;
  }

  /** The facade behind a real server. It polls only when the test says so. */
  async serve(facade: Facade): Promise<HttpServer> {
    await facade.follower.refresh();
    const server = await listen(facade.handler, { host: '127.0.0.1', port: 0 });
    this.closers.push(() => server.close(0));
    return server;
  }

  /** What to close before the directory goes. */
  onClose(close: () => unknown): void {
    this.closers.push(close);
  }

  async close(): Promise<void> {
    for (const close of this.closers.reverse()) await close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
