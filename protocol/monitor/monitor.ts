import { equalBytes, fromBase64, fromBase64Url, fromUtf8, toBase64, toHex } from '../bytes.js';
import { uncheckedCheckpoint, type Checkpoint, parseTlogProof } from '../checkpoint.js';
import { ProtocolError } from '../errors.js';
import { isSignedBy } from '../offline.js';
import { openPinned, type LogPin } from '../offline/trust.js';
import {
  CHECKPOINT_PATH,
  COSIGNED_PATH,
  LOCATION_PATH,
  openLocation,
  type OpenedLocation,
} from '../snapshot/location.js';
import { MAX_SNAPSHOT_MS } from '../schemas/log-entry.js';
import { formatTime, parseTime } from '../time.js';
import { statusOf } from '../state/answers.js';
import { logKeysOf, withLogKeys } from '../state/log-keys.js';
import type { VerifyCrypto } from '../verify.js';
import { UnreachableError, type LogFiles } from './files.js';
import { FINDINGS, type Finding, type FindingCode } from './findings.js';
import type { MapStore } from './map-store.js';
import { mergeDelayOf, NOTHING_REBUILT, Rebuild, type Look } from './rebuild.js';
import { areConsistent, SignedTree } from './signed-tree.js';
import type { MonitorState } from './state.js';
import { findProof, type Watched } from './watch.js';

export interface MonitorOptions {
  crypto: VerifyCrypto;
  /** The pinned keys of the log of shard 0, and the policy of its witnesses. */
  pin: LogPin;
  store: MapStore;
  state: MonitorState;
  /** Makes the state durable. */
  save: (state: MonitorState) => Promise<void>;
  /** Milliseconds since 1970. */
  now: () => number;
  report: (finding: Finding) => void;
}

/** Limits, so that a hostile log cannot fill memory and state. Findings of one code leave room for every other code. */
const MAX_OF_CODE = 100;
const MAX_LOOKS = 1000;

/** The merge delay in seconds while the log has no snapshot entry to declare one. */
const DEFAULT_MERGE_DELAY = 60;

/** A source's current log files and checkpoint. */
interface Served {
  files: LogFiles;
  tree: SignedTree;
  note: string;
  /** When the monitor began to request the checkpoint (`at`), and when it had received the checkpoint (`seen`). */
  at: number;
  seen: number;
}

/** Follows a log from outside, under pinned keys. */
export class Monitor {
  private readonly state: MonitorState;
  private rebuild: Rebuild;
  /** The last poll at each earlier tree size, ascending, as far as the checks of unread entries need these polls. */
  private looks: readonly Look[];
  /** When the monitor began the last poll in which the main source served the checkpoint of `state.head`. */
  private lookedAt: number | null = null;
  /** Watched proofs with a promise whose signature was verified. */
  private readonly verified = new WeakSet<Watched>();
  /** Watched proofs whose checkpoint this log extends. */
  private readonly compared = new WeakSet<Watched>();
  private found: Finding[] = [];

  constructor(private readonly options: MonitorOptions) {
    this.state = options.state;
    this.looks = options.state.looks ?? [];
    this.rebuild = this.rebuildFrom(options.state.rebuilt);
  }

  /**
   * Polls all sources once. Reads the entries of the first source, and compares the other sources with it.
   *
   * @returns every alarm of this poll, and at most 100 other findings of each code; `report` got all new findings
   */
  async pass(
    [main, ...others]: readonly [LogFiles, ...LogFiles[]],
    watched: readonly Watched[] = [],
  ): Promise<readonly Finding[]> {
    this.found = [];
    const served = await this.open(main);
    if (served !== null && (await this.extend(served))) {
      const { tree } = served;
      await this.guard(main, () => this.repairing(tree, () => this.readEntries(tree)));
      // Opens the checkpoint again, because the entries just read may have retired the key that signed it.
      this.openNote(() => served.note, main.where);
      if (this.rebuild.log.state.size === served.tree.head.size) this.checkValidity(served.at);
    }
    const { head } = this.state;
    if (head !== null) {
      const tree = this.treeOf(head, main);
      if (served !== null) await this.guard(main, () => this.checkLocation(served, tree));
      for (const files of others) {
        const other = await this.open(files);
        if (other === null) continue;
        await this.guard(files, () => this.compare(other, tree, head.note));
        await this.guard(files, () => this.checkLocation(other, tree));
      }
      for (const one of watched) {
        // Until every entry is read, a missing proof may be among the unread entries.
        if (this.rebuild.log.state.size !== head.size) break;
        await this.guard(main, () => this.repairing(tree, () => this.watch(one, tree)));
      }
    }
    await this.save();
    return this.found;
  }

  private readonly report = (finding: Finding): void => {
    const { lasting } = this.state;
    const { code, where, detail } = finding;
    const hasRoom = (kept: readonly Finding[]): boolean =>
      kept.filter((one) => one.code === code).length < MAX_OF_CODE;
    // The number of sources and of watched proofs limits the alarms that are not lasting.
    if (FINDINGS[code] === 'alarm' || hasRoom(this.found)) this.found.push(finding);
    if (FINDINGS[code] === 'lasting') {
      const ofCode = lasting.filter((one) => one.code === code);
      if (ofCode.some((one) => one.where === where && one.detail === detail)) return;
      if (hasRoom(lasting)) lasting.push(finding);
    }
    this.options.report(finding);
  };

  private add(code: FindingCode, where: string, detail: string, notes?: string[]): void {
    this.report({ code, where, detail, ...(notes !== undefined && { notes }) });
  }

  /** Reports missing, damaged and unreachable files. Such files prove nothing about the log. */
  private async guard(files: LogFiles, run: () => Promise<unknown>): Promise<void> {
    try {
      await run();
    } catch (error) {
      if (error instanceof UnreachableError) this.add('unreachable', files.where, error.message);
      else if (error instanceof ProtocolError && error.code === 'malformed_tile') {
        this.add('log_damaged', files.where, error.message);
      } else throw error;
    }
  }

  private async open(files: LogFiles): Promise<Served | null> {
    let served: Served | null = null;
    // Reads the clock before the request: with a later time, entries appended during the request would count as late.
    const at = this.options.now();
    await this.guard(files, async () => {
      const bytes = await this.readCheckpoint(files);
      if (bytes === null)
        return this.add('checkpoint_missing', files.where, 'there is no checkpoint');
      const checkpoint = this.openNote(() => fromUtf8(bytes), files.where);
      if (checkpoint !== null) {
        const tree = this.treeOf(checkpoint, files);
        served = { files, note: fromUtf8(bytes), at, seen: this.options.now(), tree };
      }
    });
    if (served !== null) this.checkSize(served);
    return served;
  }

  /** Prefers the cosigned checkpoint if a policy is pinned, as a public API does. */
  private async readCheckpoint(files: LogFiles): Promise<Uint8Array | null> {
    const cosigned = this.options.pin.policy === null ? null : await files.read(COSIGNED_PATH);
    return cosigned ?? files.read(CHECKPOINT_PATH);
  }

  /** The signed checkpoint; reports and returns null when no key of the log signed it. */
  private openNote(read: () => string, where: string): Checkpoint | null {
    try {
      return openPinned(read(), this.pin, this.options.crypto.verify).checkpoint;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.add('checkpoint_unverifiable', where, `${error.code}: ${error.message}`);
      return null;
    }
  }

  /** The pinned keys, with the changes of log keys in the entries read so far. */
  private get pin(): LogPin {
    const { pin, crypto } = this.options;
    const { keys } = this.rebuild.log.state;
    const logged = logKeysOf(crypto.sha256, pin.origin, keys.values());
    return { ...pin, vkeys: withLogKeys(pin.vkeys, logged) };
  }

  private checkSize({ files: { where }, tree: { head } }: Served): void {
    const before = this.sourceOf(where);
    if (head.size < before.size) {
      const detail = `the source served a checkpoint of ${head.size} leaves after a checkpoint of ${before.size} leaves`;
      this.add('checkpoint_went_back', where, detail);
    }
    before.size = Math.max(before.size, head.size);
  }

  private sourceOf(where: string) {
    return (this.state.sources[where] ??= { size: 0, snapshot: -1 });
  }

  /** Accepts a checkpoint of the main source if it extends the last accepted checkpoint. */
  private async extend(served: Served): Promise<boolean> {
    const { at, seen, files, tree, note } = served;
    const { head } = this.state;
    let isAccepted = head === null;
    if (head !== null) {
      await this.guard(files, async () => {
        isAccepted = await this.compare(served, this.treeOf(head, files), head.note);
      });
    }
    const { size, root } = tree.head;
    if (!isAccepted || size < (head?.size ?? 0)) return false;
    if (size !== head?.size) {
      if (head !== null)
        this.addLook({ size: head.size, seen: head.seen ?? head.at, at: this.lookedAt ?? head.at });
      this.state.head = { size, root: toBase64(root), note, at, seen };
    }
    this.lookedAt = at;
    return true;
  }

  private addLook(look: Look): void {
    const { size } = this.rebuild.log.state;
    const looks = [...this.looks, look];
    const first = looks.findLastIndex((one) => one.size <= size);
    this.looks = looks.slice(Math.max(0, first));
    // Drops a poll: its entries are then checked against an earlier poll, which raises no false alarm.
    if (this.looks.length > MAX_LOOKS) this.looks = this.looks.toSpliced(1, 1);
  }

  private async compare(other: Served, tree: SignedTree, note: string): Promise<boolean> {
    if (await areConsistent(other.tree, tree)) return true;
    this.reportFork(other.files.where, other.tree.head, other.note, note);
    return false;
  }

  private reportFork(where: string, { size, root }: Checkpoint, ...notes: string[]): void {
    const detail = `the checkpoint of ${size} leaves with root ${toHex(root)} contradicts a second checkpoint that the log signed`;
    this.add('log_forked', where, detail, notes);
  }

  private treeOf(head: { size: number; root: string | Uint8Array }, files: LogFiles): SignedTree {
    const { crypto, pin } = this.options;
    const root = typeof head.root === 'string' ? fromBase64(head.root) : head.root;
    return new SignedTree(crypto.sha256, { origin: pin.origin, size: head.size, root }, files);
  }

  private rebuildFrom(rebuilt: MonitorState['rebuilt']): Rebuild {
    const { crypto, pin, store } = this.options;
    return new Rebuild({ ...crypto, origin: pin.origin, shard: 0 }, store, rebuilt);
  }

  private async readEntries(tree: SignedTree): Promise<void> {
    const looks = [...this.looks, this.state.head!];
    while (await this.rebuild.step(tree, looks, this.report)) await this.save();
  }

  /** Rebuilds the map if a page is damaged: pages are not synced to disk, because the log has their content. */
  private async repairing(tree: SignedTree, run: () => Promise<void>): Promise<void> {
    try {
      await run();
    } catch (error) {
      if (!(error instanceof ProtocolError) || error.code !== 'malformed_map_page') throw error;
      this.rebuild = this.rebuildFrom(NOTHING_REBUILT);
      await this.readEntries(tree);
      await run();
    }
  }

  private save(): Promise<void> {
    this.state.rebuilt = this.rebuild.log;
    const isRead = this.rebuild.log.state.size === this.state.head?.size;
    if (isRead || this.looks.length === 0) delete this.state.looks;
    else this.state.looks = [...this.looks];
    return this.options.save(this.state);
  }

  private checkValidity(at: number): void {
    const { snapshot } = this.rebuild.log;
    if (snapshot === null) {
      this.add('snapshot_expired', this.options.pin.origin, 'the log has no snapshot entry');
      return;
    }
    // Readers also reject a snapshot 24 hours after its expiry scan, whatever its `valid_until`.
    const { logs, valid_until } = snapshot.entry;
    const scanned = parseTime(logs[0]!.expired_through);
    const end = Math.min(parseTime(valid_until), scanned + MAX_SNAPSHOT_MS);
    if (end > at) return;
    const detail = `the snapshot expired at ${formatTime(end)}, and the log has no newer snapshot`;
    this.add('snapshot_expired', `entry ${snapshot.index}`, detail);
  }

  /** Checks that the snapshot of a source is in the log, and that the source has not served a newer snapshot before. */
  private async checkLocation({ files }: Served, tree: SignedTree): Promise<void> {
    const { crypto } = this.options;
    const bytes = await files.read(LOCATION_PATH);
    if (bytes === null) return;
    const where = `${files.where}, ${LOCATION_PATH}`;
    let opened: OpenedLocation;
    let note: string;
    try {
      // Requires no quorum, because a publisher publishes snapshots before the witnesses cosign.
      opened = openLocation(crypto, bytes, this.pin.vkeys);
      note = parseTlogProof(opened.location.tlog_proof).checkpoint;
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.add('snapshot_unverifiable', where, `${error.code}: ${error.message}`);
      return;
    }
    const own = this.treeOf(opened.checkpoint, files);
    if (!(await areConsistent(own, tree))) {
      this.reportFork(where, opened.checkpoint, note, this.state.head!.note);
    }
    const before = this.sourceOf(files.where);
    if (opened.index < before.snapshot) {
      const detail = `the source served the snapshot of entry ${opened.index} after the snapshot of entry ${before.snapshot}`;
      this.add('snapshot_went_back', where, detail);
    }
    before.snapshot = Math.max(before.snapshot, opened.index);
  }

  private async watch(one: Watched, tree: SignedTree): Promise<void> {
    const { crypto, pin, now } = this.options;
    const { proofId } = one;
    const fault = this.faultOf(one);
    if (fault !== null) {
      this.add('receipt_unverifiable', proofId, fault);
      return;
    }
    await this.compareNote(one, tree);
    const { state, snapshot } = this.rebuild.log;
    const expiredThrough = state.verdict === null ? -1 : parseTime(state.verdict.expiredThrough);
    const log = { origin: pin.origin, size: state.size, expiredThrough };
    const found = await findProof(crypto.sha256, (key) => this.rebuild.find(key), proofId);
    const status = found === null ? 'ABSENT' : statusOf('proof', { proofId, ...found, log });
    const before = (this.state.watched[proofId] ??= { status, since: Math.min(one.at, now()) });
    // A merge delay that the log declares after the monitor first saw the receipt does not apply to the receipt.
    if (snapshot !== null) before.delay ??= mergeDelayOf(snapshot.entry);
    const { delay = DEFAULT_MERGE_DELAY } = before;
    if (status !== before.status) {
      this.add('status_changed', proofId, `from ${before.status} to ${status}`);
      before.status = status;
    }
    const isDue = (this.lookedAt ?? 0) - before.since > 1000 * delay;
    if (found === null && one.isPromised && isDue) {
      const detail = `${pin.origin} does not have this proof at ${tree.head.size} leaves, ${delay} s after its receipt`;
      this.add('proof_omitted', proofId, detail, [this.state.head!.note]);
    }
    if (found !== null && one.aepHash !== undefined && one.aepHash !== toHex(found.proof.aepHash)) {
      const detail = `the document has the AEP ${one.aepHash}, but the log has ${toHex(found.proof.aepHash)}`;
      this.add('receipt_contradicted', proofId, detail);
    }
  }

  /** Why the promise proves nothing, or null: anyone may have written the file, not only the service. */
  private faultOf(one: Watched): string | null {
    const { signed, fault = null } = one;
    if (signed === undefined || this.verified.has(one)) return fault;
    const { key_id: keyId } = signed.aep;
    const key = this.rebuild.log.state.keys.get(keyId);
    const publicKey = key?.use === 'aep' && key.publicKey !== null ? key.publicKey : null;
    if (publicKey === null) return `the log has no AEP key ${keyId}`;
    if (!isSignedBy(signed, fromBase64Url(publicKey), this.options.crypto)) {
      return `the AEP key ${keyId} did not sign the document`;
    }
    this.verified.add(one);
    return null;
  }

  private async compareNote(one: Watched, tree: SignedTree): Promise<void> {
    const { proofId, checkpoint: given = null } = one;
    if (given === null || this.compared.has(one)) return;
    try {
      const note = given.startsWith('c2sp.org/') ? parseTlogProof(given).checkpoint : given;
      const { origin } = uncheckedCheckpoint(note);
      if (origin !== this.pin.origin) {
        // A checkpoint of another log, such as the retired log that this log continues, promises nothing about this log.
        this.compared.add(one);
        const detail = `the document has a checkpoint of ${origin}, which was not checked`;
        this.add('checkpoint_of_other_log', proofId, detail);
        return;
      }
      // Requires no quorum, because a registry sends evidence before the witnesses cosign.
      const unwitnessed = { ...this.pin, policy: null };
      const { checkpoint } = openPinned(note, unwitnessed, this.options.crypto.verify);
      if (checkpoint.size > tree.head.size) return;
      if (equalBytes(await tree.rootAt(checkpoint.size), checkpoint.root)) {
        this.compared.add(one);
        return;
      }
      this.reportFork(proofId, checkpoint, note, this.state.head!.note);
    } catch (error) {
      if (!(error instanceof ProtocolError) || error.code === 'malformed_tile') throw error;
      this.add('checkpoint_unverifiable', proofId, `${error.code}: ${error.message}`);
    }
  }
}
