import { concat, equalBytes, fromBase64, fromBase64Url, fromHex } from '../bytes.js';
import { isSince1970, readEntry } from '../entries.js';
import type { MapValue } from '../map/page.js';
import type { MapChange } from '../map/update.js';
import type {
  ErasureEntry,
  KeyEntry,
  LogEntry,
  ProofEntry,
  SnapshotEntry,
  StatusEntry,
  VerdictEntry,
} from '../schemas/log-entry.js';
import { ARTIFACT_KINDS } from '../status.js';
import { parseTime } from '../time.js';
import { earlier, keysChangedBy, type LogContext, verdictMessage } from './log-keys.js';
import { keyStatusAt, lifeOf, type LogKey, type LogState } from './log-state.js';
import {
  aepKeyMapKey,
  decodeProof,
  encodeAepKey,
  encodeEvent,
  encodeProof,
  NONE,
  PROOF_RECORD_BYTES,
  proofMapKey,
  shardOf,
  type PublicProof,
} from './record.js';

/** Reads the previous state and the log. Reads may be concurrent. */
export interface LogReader {
  /** The values of keys in the previous map, in the order of `keys`; null for a key that the map does not have. */
  values: (keys: readonly Uint8Array[]) => Promise<readonly (MapValue | null)[]>;
  /** The bytes of the entries with indexes in [from, to), which the previous state covers. */
  entries: (from: number, to: number) => Promise<readonly Uint8Array[]>;
  /** The root of the tree at any size up to the index of the last of the next entries. */
  rootAt: (size: number) => Promise<Uint8Array>;
}

export interface Reduced {
  state: LogState;
  changes: MapChange[];
  /** The indexes of the entries without effect, ascending. */
  ignored: number[];
}

/** Proofs in memory besides those of the entries: an entry may be about every earlier proof. */
const MOST_LEAVES = 100_000;

/**
 * The state of the log after some or all of its next entries (up to the returned `state.size`), and the changes
 * to its map, each for a different key. The result depends on the entries only, not on how they are divided among
 * calls. An entry without effect (spec/log.md, section 11) changes nothing; its index is in `ignored`.
 *
 * @param entries the bytes of the leaves from `state.size` on
 * @param mostLeaves stops after an entry once it has loaded more than this number of proofs besides those of the
 *   entries
 * @throws ProtocolError `malformed_record` when the map cannot be the map of a log; errors of `reader`
 */
export async function reduce(
  ctx: LogContext,
  state: LogState,
  entries: readonly Uint8Array[],
  reader: LogReader,
  mostLeaves = MOST_LEAVES,
): Promise<Reduced> {
  return new Reduction(ctx, state, entries, reader).run(mostLeaves);
}

/** A proof of the log. */
interface Leaf {
  key: Uint8Array;
  proof: PublicProof;
  history: Uint8Array;
  isChanged: boolean;
}

/** Maximum number of entries that are read at once. */
const READ_AHEAD = 1000;

class Reduction {
  private readonly start: number;
  private state: LogState;
  private readonly proofs: Map<string, number>;
  private ownKeys: Map<string, LogKey> | null = null;
  private idsByActivation: Map<number, string> | null = null;
  private readonly changedKeys = new Set<string>();
  private readonly ignored: number[] = [];
  private readonly byId = new Map<string, Leaf>();
  /** Loaded leaves by index; null for a leaf that is not a proof. */
  private readonly byIndex = new Map<number, Leaf | null>();

  constructor(
    private readonly ctx: LogContext,
    before: LogState,
    private readonly entries: readonly Uint8Array[],
    private readonly reader: LogReader,
  ) {
    this.start = before.size;
    this.proofs = new Map(before.proofs);
    this.state = { ...before, proofs: this.proofs };
  }

  async run(mostLeaves: number): Promise<Reduced> {
    const entries = this.entries.map(readEntry);
    const keys = await this.loadProofs(entries);
    let at = 0;
    for (; at < entries.length && this.byId.size <= entries.length + mostLeaves; at++) {
      const entry = entries[at]!;
      if (entry === null || !isSince1970(entry)) this.ignore(this.start + at);
      else if (entry.type === 'proof') this.addProof(this.start + at, entry, keys[at]!);
      else await this.apply(this.start + at, entry);
    }
    const size = this.start + at;
    for (const id of this.proofs.keys()) {
      if ((this.state.keys.get(id)!.retiredFrom ?? NONE) <= size) this.proofs.delete(id);
    }
    const state = { ...this.state, size };
    return { state, changes: this.changes(), ignored: this.ignored };
  }

  private ignore(index: number): void {
    this.ignored.push(index);
  }

  private changes(): MapChange[] {
    const leaves = [...this.byId.values()].filter(({ isChanged }) => isChanged);
    // One buffer: an array for each record would cost as much as all other work on a proof.
    const records = new Uint8Array(leaves.length * PROOF_RECORD_BYTES);
    const changes: MapChange[] = leaves.map(({ key, proof, history }, at) => {
      const place = records.subarray(at * PROOF_RECORD_BYTES, (at + 1) * PROOF_RECORD_BYTES);
      return { key, value: { record: encodeProof(proof, place), history } };
    });
    for (const id of this.changedKeys) {
      const key = this.state.keys.get(id)!;
      const value = { record: encodeAepKey(lifeOf(key)), history: new Uint8Array(0) };
      changes.push({ key: aepKeyMapKey(this.ctx.shard, key.index), value });
    }
    return changes;
  }

  /** Loads the proofs that entries name by id, and returns the map key of the proof that each entry names. */
  private async loadProofs(entries: readonly (LogEntry | null)[]): Promise<(Uint8Array | null)[]> {
    const keys = entries.map((entry) =>
      entry?.type === 'proof' || entry?.type === 'status' ? proofMapKey(entry.proof_id) : null,
    );
    const values = await this.reader.values(keys.filter((key) => key !== null));
    let next = 0;
    entries.forEach((entry, at) => {
      const value = keys[at] === null ? null : values[next++]!;
      if (value !== null) this.open((entry as ProofEntry).proof_id, keys[at]!, value);
    });
    return keys;
  }

  /** The proof with an id, from its value in the map. */
  private open(id: string, key: Uint8Array, { record: bytes, history }: MapValue): Leaf {
    const leaf = { key, proof: decodeProof(bytes), history, isChanged: false };
    return this.byId.get(id) ?? this.remember(id, leaf);
  }

  private remember(id: string, leaf: Leaf): Leaf {
    this.byId.set(id, leaf);
    this.byIndex.set(leaf.proof.leafIndex, leaf);
    return leaf;
  }

  private async apply(index: number, entry: Exclude<LogEntry, ProofEntry>): Promise<void> {
    switch (entry.type) {
      case 'status':
        return this.applyStatus(index, entry);
      case 'key':
        return this.applyKeyEntry(index, entry);
      case 'erasure':
        return this.applyErasure(index, entry);
      case 'verdict':
        return this.applyVerdict(index, entry);
      case 'snapshot':
        return this.applySnapshot(index, entry);
    }
  }

  private addProof(leafIndex: number, entry: ProofEntry, key: Uint8Array): void {
    const { proof_id: id, effect, valid_until: ends } = entry;
    if (shardOf(id) !== this.ctx.shard || this.byId.has(id)) return this.ignore(leafIndex);
    const signer = this.state.keys.get(entry.key_id);
    const aepKey = signer?.use === 'aep' ? signer : null;
    const hasArtifacts = 'trust' in ends;
    const proof: PublicProof = {
      effect,
      isLive: entry.environment === 'live',
      hasArtifacts,
      verdict: 'none',
      isGone: false,
      revoked: 0,
      leafIndex,
      acceptedAt: parseTime(entry.time),
      verdictSize: null,
      verifiedAt: null,
      keyIndex: aepKey?.index ?? null,
      ends: hasArtifacts
        ? [endOf(ends.proof), endOf(ends.passport), endOf(ends.certificate), endOf(ends.trust)]
        : [endOf(ends.proof), null, null, null],
      aepHash: fromHex(entry.aep_hash),
      proofRecordHash: fromHex(entry.proof_record_hash),
    };
    this.remember(id, { key, proof, history: NO_HISTORY, isChanged: true });
    if (aepKey !== null) this.countProof(aepKey, leafIndex);
  }

  /** A delegated key is retired after its last proof. */
  private countProof(key: LogKey, leafIndex: number): void {
    const before = this.proofs.get(key.id);
    if (before === undefined) return;
    if (before + 1 < key.maxProofs!) {
      this.proofs.set(key.id, before + 1);
    } else {
      this.proofs.delete(key.id);
      this.setKeys([{ ...key, retiredFrom: earlier(key.retiredFrom, leafIndex + 1) }]);
    }
  }

  private applyStatus(index: number, entry: StatusEntry): void {
    const leaf = this.byId.get(entry.proof_id);
    if (leaf === undefined) return this.ignore(index);
    const bit = 1 << ARTIFACT_KINDS.indexOf(entry.artifact_kind);
    if ((leaf.proof.revoked & bit) !== 0) return this.ignore(index);
    leaf.proof.revoked |= bit;
    const time = parseTime(entry.time);
    const reasonHash = fromHex(entry.reason_hash);
    addEvent(
      leaf,
      encodeEvent({ type: 'revoked', index, time, kind: entry.artifact_kind, reasonHash }),
    );
  }

  private applyKeyEntry(index: number, entry: KeyEntry): void {
    const changed = keysChangedBy(this.ctx, this.state.keys, index, entry);
    if (changed.length === 0) return this.ignore(index);
    this.setKeys(changed);
    if (entry.use === 'verifier' && entry.change === 'retire') {
      this.state = { ...this.state, mayLowerExpiry: true };
    }
  }

  private setKeys(changed: readonly LogKey[]): void {
    this.ownKeys ??= new Map(this.state.keys);
    this.state = { ...this.state, keys: this.ownKeys };
    for (const key of changed) {
      if (!this.ownKeys.has(key.id) && key.maxProofs !== null) this.proofs.set(key.id, 0);
      this.ownKeys.set(key.id, key);
      this.idsByActivation?.set(key.index, key.id);
      if (key.use === 'aep') this.changedKeys.add(key.id);
    }
  }

  private async applyErasure(index: number, { ranges, cause, time }: ErasureEntry): Promise<void> {
    if (ranges.at(-1)![1] > index) return this.ignore(index);
    const event = encodeEvent({ type: cause, index, time: parseTime(time) });
    for (const [from, to] of ranges) {
      await this.forEachLeaf(from, to, (leaf) => {
        if (leaf.proof.isGone) return;
        leaf.proof.isGone = true;
        addEvent(leaf, event);
      });
    }
  }

  private async applyVerdict(index: number, entry: VerdictEntry): Promise<void> {
    if (!(await this.verdictCounts(index, entry))) return this.ignore(index);
    const verifiedFrom = this.state.verdict?.to ?? 0;
    const failed = new Set(entry.failed);
    const restored = new Set(entry.restored);
    const time = parseTime(entry.time);
    const [passedEvent, failedEvent, restoredEvent] = (
      ['passed', 'failed', 'restored'] as const
    ).map((type) => encodeEvent({ type, index, time }));
    const giveVerdict = (leaf: Leaf): void => {
      const { proof } = leaf;
      const { verdict, leafIndex } = proof;
      if (proof.isGone || !this.isKeyActive(proof)) return;
      if (failed.has(leafIndex)) proof.verdict = 'fail';
      else if (verdict === 'none' || restored.has(leafIndex)) proof.verdict = 'pass';
      if (proof.verdict === verdict) return;
      proof.verdictSize ??= entry.to;
      proof.verifiedAt = time;
      if (proof.verdict === 'fail') addEvent(leaf, failedEvent!);
      else addEvent(leaf, verdict === 'none' ? passedEvent! : restoredEvent!);
    };
    const earlierOnes = [...failed, ...restored].filter((leaf) => leaf < verifiedFrom);
    await Promise.all(earlierOnes.map((leaf) => this.forEachLeaf(leaf, leaf + 1, giveVerdict)));
    await this.forEachLeaf(verifiedFrom, entry.to, giveVerdict);
    const verdict = { index, to: entry.to, expiredThrough: entry.expired_through };
    this.state = { ...this.state, verdict, mayLowerExpiry: false };
  }

  private async verdictCounts(index: number, entry: VerdictEntry): Promise<boolean> {
    const { verdict: before, mayLowerExpiry } = this.state;
    const key = this.state.keys.get(entry.key_id);
    if (
      entry.previous !== (before?.index ?? null) ||
      entry.to > index ||
      entry.to < (before?.to ?? 0) ||
      (!mayLowerExpiry && entry.expired_through < (before?.expiredThrough ?? '')) ||
      key?.use !== 'verifier' ||
      keyStatusAt(key, index) !== 'active'
    ) {
      return false;
    }
    const { sig, ...signed } = entry;
    return (
      equalBytes(fromBase64(entry.root), await this.reader.rootAt(entry.to)) &&
      this.ctx.verify(
        fromBase64Url(key.publicKey!),
        verdictMessage(this.ctx.origin, signed),
        fromBase64(sig),
      )
    );
  }

  private isKeyActive({ keyIndex, leafIndex }: PublicProof): boolean {
    if (keyIndex === null) return false;
    const { keys } = this.state;
    this.idsByActivation ??= new Map([...keys.values()].map(({ index, id }) => [index, id]));
    const key = keys.get(this.idsByActivation.get(keyIndex) ?? '');
    return key !== undefined && keyStatusAt(key, leafIndex) === 'active';
  }

  private async applySnapshot(index: number, { logs }: SnapshotEntry): Promise<void> {
    const { origin, shard } = this.ctx;
    const before = this.state.snapshot;
    const own = logs.find((log) => log.shard === 0);
    if (
      shard !== 0 ||
      own?.origin !== origin ||
      own.size > index ||
      own.size < (before?.size ?? 0) ||
      own.lookup_from < (before?.lookupFrom ?? 0) ||
      own.expired_through !== (await this.expiredThroughAt(own.size)) ||
      !equalBytes(fromBase64(own.root), await this.reader.rootAt(own.size))
    ) {
      return this.ignore(index);
    }
    const snapshot = { index, size: own.size, lookupFrom: own.lookup_from };
    this.state = { ...this.state, snapshot };
  }

  /** `expired_through` of the last verdict below `size`; null without one. */
  private async expiredThroughAt(size: number): Promise<string | null> {
    let { verdict } = this.state;
    while (verdict !== null && verdict.index >= size) {
      const { previous } = (await this.readEntry(verdict.index)) as VerdictEntry;
      if (previous === null) return null;
      const before = (await this.readEntry(previous)) as VerdictEntry;
      verdict = { index: previous, to: before.to, expiredThrough: before.expired_through };
    }
    return verdict?.expiredThrough ?? null;
  }

  private async forEachLeaf(from: number, to: number, visit: (leaf: Leaf) => void): Promise<void> {
    for (let at = from; at < to;) {
      const end = at < this.start ? Math.min(to, this.start, at + READ_AHEAD) : to;
      if (at < this.start) await this.loadLeaves(at, end);
      for (; at < end; at++) {
        const leaf = this.byIndex.get(at);
        if (leaf) visit(leaf);
      }
    }
  }

  /** Loads leaves of the previous state, except leading leaves that are already loaded. */
  private async loadLeaves(from: number, to: number): Promise<void> {
    while (from < to && this.byIndex.has(from)) from++;
    if (from === to) return;
    const entries = (await this.reader.entries(from, to)).map(readEntry);
    const keys = await this.loadProofs(
      entries.map((entry) => (entry?.type === 'proof' ? entry : null)),
    );
    for (const [at, entry] of entries.entries()) {
      const leaf = keys[at] === null ? undefined : this.byId.get((entry as ProofEntry).proof_id);
      if (leaf?.proof.leafIndex !== from + at) this.byIndex.set(from + at, null);
    }
  }

  private async readEntry(index: number): Promise<LogEntry | null> {
    const own = this.entries[index - this.start];
    return readEntry(own ?? (await this.reader.entries(index, index + 1))[0]!);
  }
}

function addEvent(leaf: Leaf, event: Uint8Array): void {
  leaf.history = leaf.history.length === 0 ? event : concat(leaf.history, event);
  leaf.isChanged = true;
}

const NO_HISTORY = new Uint8Array(0);
const endOf = (end: string | null): number | null => (end === null ? null : parseTime(end));
