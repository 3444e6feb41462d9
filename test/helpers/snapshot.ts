import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { generateKeyPairSync, sign } from 'node:crypto';
import { createFacade, type Facade } from '#api/public/facade';
import { directorySource, type SnapshotSource } from '#api/public/snapshot/source';
import { toBase64Url, toHex, utf8 } from '#protocol/bytes';
import { keyEntryBytes, proofEntryBytes, statusEntryBytes } from '#protocol/entries';
import { jwkThumbprint } from '#protocol/keys';
import { CompactRange, leafHash } from '#protocol/merkle';
import { formatVkey } from '#protocol/note';
import type { ArtifactKind } from '#protocol/status';
import { extendTiles, tilesForAppend, type Tile } from '#protocol/tiles';
import { formatTime } from '#protocol/time';
import { createPublisher, type Publisher, type PublisherContext } from '#publisher/publisher';
import type { Leaf, LeafVerdict, ProofLeaf, RegistryView } from '#publisher/registry-view';
import { nativeSha256, nativeVerify } from '#runtime/crypto';
import { listen, type HttpServer } from '#runtime/http-server';
import { logger } from '#runtime/log';

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
  private readonly verdictRows: ({ verdictId: number; leafIndex: number } & LeafVerdict)[] = [];
  private verdictId = 0;
  private verified: { treeSize: number; root: Uint8Array; verdictId: number } | null = null;
  checkpoints: { treeSize: number; root: Uint8Array; note: string }[] = [];
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
    this.verified = { treeSize: this.all.length, root: this.root(), verdictId: ++this.verdictId };
  }

  /** The verifier changes its mind about one leaf. */
  judge(proofId: string, verdict: Partial<LeafVerdict>): void {
    const leafIndex = this.all.findIndex(
      (leaf) => leaf.kind === 'proof' && leaf.proofId === proofId,
    );
    this.verdictRows.push({
      verdictId: ++this.verdictId,
      leafIndex,
      outcome: 'pass',
      expired: [],
      verifiedAt: this.clock.now(),
      ...verdict,
    });
  }

  /** Forgets everything from leaf `size` on, as a restored backup would. */
  truncate(size: number): void {
    const kept = this.all.splice(0, size);
    this.all.length = 0;
    this.tiles = new Map();
    this.checkpoints = this.checkpoints.filter((checkpoint) => checkpoint.treeSize <= size);
    this.verified = null;
    kept.forEach((leaf) => this.append(leaf));
    this.verify();
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

  private effective(leafIndex: number): LeafVerdict | undefined {
    if (this.verified === null || leafIndex >= this.verified.treeSize) return undefined;
    const own = this.verdictRows.findLast((row) => row.leafIndex === leafIndex);
    return own ?? { outcome: 'pass', expired: [], verifiedAt: START };
  }

  private async answer<T>(what: keyof RegistryView, value: () => T): Promise<T> {
    await Promise.resolve();
    this.asked(what);
    return value();
  }

  frontier() {
    return this.answer('frontier', () => this.verified);
  }
  latestCheckpoint() {
    return this.answer('latestCheckpoint', () => this.checkpoints.at(-1) ?? null);
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
      this.effectives(Array.from({ length: to - from }, (_, i) => from + i)),
    );
  }
  verdictsForLeaves(leafIndexes: number[]) {
    return this.answer('verdictsForLeaves', () => this.effectives(leafIndexes));
  }
  verdictChangesSince(verdictId: number, limit: number) {
    return this.answer('verdictChangesSince', () =>
      this.verdictRows.filter((row) => row.verdictId > verdictId).slice(0, limit),
    );
  }

  private effectives(leafIndexes: number[]): Map<number, LeafVerdict> {
    const found = new Map<number, LeafVerdict>();
    for (const leafIndex of leafIndexes) {
      const verdict = this.effective(leafIndex);
      if (verdict !== undefined) found.set(leafIndex, verdict);
    }
    return found;
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
      validForMs: 15 * 60 * 1000,
      windowProofs: 100_000,
      ...overrides,
    });
    this.closers.push(() => publisher.close());
    return publisher;
  }

  facade(
    overrides: { source?: SnapshotSource; windowProofs?: number; publicUrl?: string } = {},
  ): Facade {
    const { source, ...rest } = overrides;
    const facade = createFacade({
      snapshotSource: source ?? directorySource(this.directory),
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

  async close(): Promise<void> {
    for (const close of this.closers.reverse()) await close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}
