import { equalBytes, toHex } from '#protocol/bytes';
import { formatTime } from '#protocol/time';
import type { Chunk, StoredLeaf, StoredVerdict } from '#sql/fsck/log';
import type { Report } from '../findings.js';
import type { ChunkCheckResult, LeafCheckResult } from './check-leaf.js';
import type { GrowingTree } from '../tree.js';
import type { KeyHistory } from './context.js';

interface LeafState extends Pick<LeafCheckResult, 'leafIndex' | 'verifies' | 'ends'> {
  /** The key was compromised, and the verifier has not verified the leaf since. */
  isAwaited: boolean;
  isErased: boolean;
  /** The verifier has not recorded the erasure yet. */
  isDue: boolean;
}

/** Compares the verdicts of a chunk with the log, and with the results of fsck. */
export class ChunkVerdicts {
  /** Verdicts on ranges, in log order. */
  readonly ranges: StoredVerdict[];
  private readonly singles = new Map<number, StoredVerdict[]>();

  constructor(
    private readonly chunk: Chunk,
    private readonly report: Report,
  ) {
    this.ranges = chunk.verdicts
      .filter(({ frontier }) => frontier)
      .sort((a, b) => a.lastIndex - b.lastIndex);
    for (const verdict of chunk.verdicts) {
      if (verdict.frontier) continue;
      const own = this.singles.get(verdict.firstIndex) ?? [];
      this.singles.set(verdict.firstIndex, [...own, verdict]);
    }
  }

  /** Reports a verdict whose root or subtrees differ from the recomputed tree at its size. */
  reportRootMismatch(tree: GrowingTree): boolean {
    const verdict = this.endingAt(tree.size);
    if (verdict === undefined) return false;
    const root = tree.root();
    const subtrees = Buffer.concat(tree.subtrees());
    if (equalBytes(root, verdict.root) && verdict.subtrees?.equals(subtrees) === true) return false;
    const expected = `root ${toHex(root)} of ${tree.size} leaves, and their subtrees`;
    this.report('verdict_root_differs', `svc.verdict verdict_id=${verdict.verdictId}`, expected);
    return true;
  }

  checkKeys(size: number, keys: KeyHistory): void {
    const verdict = this.endingAt(size);
    if (verdict === undefined || verdict.keysDigest?.equals(keys.digestAt(size)) === true) return;
    const expected = `keys_digest ${toHex(keys.digestAt(size))}, as in the log`;
    this.report('verdict_keys_differ', `svc.verdict verdict_id=${verdict.verdictId}`, expected);
  }

  /** Checks that the effective verdict on a leaf agrees with the result of fsck, and with the expiries in the AEP. */
  checkLeaf(leaf: LeafState): void {
    const { leafIndex, verifies, ends } = leaf;
    const verdicts = this.on(leafIndex);
    const inForce = verdicts.at(-1);
    if (inForce === undefined) return;
    const where = `svc.verdict verdict_id=${inForce.verdictId} leaf_index=${leafIndex}`;
    if (verifies === false && inForce.outcome === 'pass' && !leaf.isAwaited) {
      this.report('verdict_passes', where, 'not a pass, because the leaf does not verify');
    }
    if (leaf.isErased && inForce.outcome === 'pass' && !leaf.isDue && !leaf.isAwaited) {
      this.report('verdict_passes', where, 'not a pass, because the payload was erased');
    }
    if (verifies === true && inForce.outcome !== 'pass') {
      this.report('verdict_outdated', where, 'a pass, because the leaf verifies');
    }
    // The expiry of a leaf that does not verify is not reliable.
    if (verifies !== true || inForce.outcome !== 'pass') return;
    for (const kind of inForce.expired) {
      const end = ends.find((one) => one.kind === kind);
      const first = verdicts.find(({ expired }) => expired.includes(kind));
      if (end === undefined || end.expiresAt > (first?.verifiedAt ?? 0)) {
        const when = end === undefined ? 'never' : formatTime(end.expiresAt);
        const expected = `${kind} to expire ${when}, according to its AEP`;
        this.report('verdict_expired_early', where, expected);
      }
    }
    this.checkExpiries(leaf, inForce);
  }

  /** Proofs whose status may differ from VALID need a row in svc.status_exception: lists by status read this table. */
  checkException({ leafIndex, proof, isErased, isRevoked, isException }: StoredLeaf): void {
    if (isException || proof === null || proof.tenantNo === null) return;
    const hasException = this.on(leafIndex).some(
      ({ frontier, outcome, expired }) => !frontier || outcome !== 'pass' || expired.length > 0,
    );
    if (!isErased && !isRevoked && !hasException) return;
    const where = `svc.status_exception tenant_no=${proof.tenantNo} leaf_index=${leafIndex}`;
    this.report(
      'status_exception_missing',
      where,
      'a row, because the status of the proof changed',
    );
  }

  /** Reports expiry rows of artifacts whose AEP sets no expiry. */
  checkOrphanExpiries(results: ChunkCheckResult): void {
    for (const { leafIndex, kind } of this.chunk.expiries) {
      const leaf = results.get(leafIndex);
      // The expiries of a damaged AEP are unknown.
      if (leaf?.decision === null || leaf?.ends.some((end) => end.kind === kind) === true) continue;
      const where = `svc.expiry leaf_index=${leafIndex} artifact_kind=${kind}`;
      this.report('expiry_differs', where, 'no row: the AEP sets no expiry');
    }
  }

  /** Every verdict on a leaf; the last is effective. */
  private on(leafIndex: number): StoredVerdict[] {
    const range = this.ranges.find(
      ({ firstIndex, lastIndex }) => firstIndex <= leafIndex && leafIndex <= lastIndex,
    );
    const found = range === undefined ? [] : [range];
    return [...found, ...(this.singles.get(leafIndex) ?? [])].sort(
      (a, b) => a.treeSize - b.treeSize || a.verdictId - b.verdictId,
    );
  }

  private endingAt(size: number): StoredVerdict | undefined {
    return this.ranges.find(({ lastIndex }) => lastIndex + 1 === size);
  }

  /**
   * Checks that each artifact that will expire has a row in svc.expiry, where the expiry scan finds
   * it.
   */
  private checkExpiries({ leafIndex, ends }: LeafState, inForce: StoredVerdict): void {
    const { expiries, verifierCheckedAt } = this.chunk;
    for (const { kind, expiresAt } of ends) {
      if (inForce.expired.includes(kind)) continue;
      const where = `svc.expiry leaf_index=${leafIndex} artifact_kind=${kind}`;
      const row = expiries.find((one) => one.leafIndex === leafIndex && one.kind === kind);
      const end = formatTime(expiresAt);
      if (row === undefined) this.report('expiry_missing', where, `a row that expires at ${end}`);
      else if (row.expiresAt !== expiresAt) {
        this.report('expiry_differs', where, `${end}, found ${formatTime(row.expiresAt)}`);
      } else if (verifierCheckedAt !== null && expiresAt <= verifierCheckedAt) {
        const scan = `the expiry scan of ${formatTime(verifierCheckedAt)}`;
        this.report('expiry_overdue', where, `an expired verdict: ${scan} has finished`);
      }
    }
  }
}
