import { equalBytes, toHex } from '#protocol/bytes';
import type { ArtifactKind } from '#protocol/status';
import { formatTime } from '#protocol/time';
import type { Chunk, StoredVerdict } from '#sql/fsck/chunk';
import type { Report } from '../findings.js';
import type { JudgedChunk } from './check-leaf.js';
import type { GrowingTree } from '../tree.js';
import type { KeyHistory } from './keys.js';

/** The verdicts of a chunk, by the leaves that they cover. */
export class ChunkVerdicts {
  private readonly ranges: StoredVerdict[];
  private readonly singles = new Map<number, StoredVerdict[]>();
  private readonly byEnd: Map<number, StoredVerdict>;

  constructor(chunk: Chunk) {
    this.ranges = chunk.verdicts
      .filter((verdict) => verdict.frontier)
      .sort((a, b) => a.lastIndex - b.lastIndex);
    this.byEnd = new Map(this.ranges.map((verdict) => [verdict.lastIndex + 1, verdict]));
    for (const verdict of chunk.verdicts) {
      if (verdict.frontier) continue;
      const own = this.singles.get(verdict.firstIndex) ?? [];
      this.singles.set(verdict.firstIndex, [...own, verdict]);
    }
  }

  /** Every verdict on a leaf; the last one is in force. */
  on(leafIndex: number): StoredVerdict[] {
    const range = this.ranges.find(
      ({ firstIndex, lastIndex }) => firstIndex <= leafIndex && leafIndex <= lastIndex,
    );
    const own = this.singles.get(leafIndex);
    if (own === undefined) return range === undefined ? [] : [range];
    return [...(range === undefined ? [] : [range]), ...own].sort(
      (a, b) => a.treeSize - b.treeSize || a.verdictId - b.verdictId,
    );
  }

  /** The verdict on a range that ends with so many leaves. */
  endingAt(size: number): StoredVerdict | undefined {
    return this.byEnd.get(size);
  }

  /** Tells when what the verifier wrote of the tree at just this size is not what its leaves make. */
  tellsOtherRoot(tree: GrowingTree, report: Report): boolean {
    const verdict = this.byEnd.get(tree.size);
    if (verdict === undefined) return false;
    const root = tree.root();
    const subtrees = Buffer.concat(tree.state.range.map((hash) => Buffer.from(hash, 'base64')));
    if (equalBytes(root, verdict.root) && verdict.subtrees?.equals(subtrees) === true) return false;
    const where = `svc.verdict verdict_id=${String(verdict.verdictId)}`;
    const size = String(tree.size);
    report(
      'verdict_root_differs',
      where,
      `root ${toHex(root)} of ${size} leaves, and their subtrees`,
    );
    return true;
  }
}

/** Tells when the keys that a verdict on just this prefix rests on are not those of the log. */
export function tellOtherKeys(
  verdicts: ChunkVerdicts,
  size: number,
  keys: KeyHistory,
  report: Report,
): void {
  const verdict = verdicts.endingAt(size);
  if (verdict === undefined || verdict.keysDigest?.equals(keys.digestAt(size)) === true) return;
  const where = `svc.verdict verdict_id=${String(verdict.verdictId)}`;
  report(
    'verdict_keys_differ',
    where,
    `keys_digest ${toHex(keys.digestAt(size))}, as the log has them`,
  );
}

/** A leaf as it was found, with what hangs on its verdict. */
export interface LeafState {
  leafIndex: number;
  verifies: boolean | null;
  ends: readonly { kind: ArtifactKind; expiresAt: number }[];
  /** Its key was compromised, and the verifier is still to come round. */
  isAwaited: boolean;
  /** A record says that its payload was erased. */
  isErased: boolean;
  /** The verifier is still to say so. */
  isDue: boolean;
}

/** The verdict in force says no more than what was found, and says what is over. */
export function checkVerdict(
  leaf: LeafState,
  verdicts: readonly StoredVerdict[],
  chunk: Chunk,
  report: Report,
): void {
  const inForce = verdicts.at(-1);
  if (inForce === undefined) return;
  const { leafIndex, verifies, ends } = leaf;
  const where = `svc.verdict verdict_id=${String(inForce.verdictId)} leaf_index=${String(leafIndex)}`;
  if (verifies === false && inForce.outcome === 'pass' && !leaf.isAwaited) {
    report('verdict_passes', where, 'no pass: the leaf does not verify');
  }
  if (leaf.isErased && inForce.outcome === 'pass' && !leaf.isDue && !leaf.isAwaited) {
    report('verdict_passes', where, 'no pass: the payload was erased');
  }
  if (verifies === true && inForce.outcome !== 'pass') {
    report('verdict_outdated', where, 'a pass: the leaf verifies now');
  }
  // Of a leaf that does not verify it is not known what was signed.
  if (verifies !== true || inForce.outcome !== 'pass') return;
  for (const kind of inForce.expired) {
    const end = ends.find((one) => one.kind === kind);
    const first = verdicts.find(({ expired }) => expired.includes(kind));
    if (end === undefined || end.expiresAt > (first?.verifiedAt ?? 0)) {
      const when = end === undefined ? 'never' : formatTime(end.expiresAt);
      report('verdict_expired_early', where, `${kind} to be over ${when}, by its AEP`);
    }
  }
  checkExpiries(leaf, inForce, chunk, report);
}

/** What is to end and has not is remembered, so that the verifier finds it. */
function checkExpiries(
  { leafIndex, ends }: LeafState,
  inForce: StoredVerdict,
  { expiries, verifierCheckedAt }: Chunk,
  report: Report,
): void {
  for (const { kind, expiresAt } of ends) {
    if (inForce.expired.includes(kind)) continue;
    const where = `svc.expiry leaf_index=${String(leafIndex)} artifact_kind=${kind}`;
    const row = expiries.find((one) => one.leafIndex === leafIndex && one.kind === kind);
    const end = formatTime(expiresAt);
    if (row === undefined) report('expiry_missing', where, `a row that ends at ${end}`);
    else if (row.expiresAt !== expiresAt) {
      report('expiry_differs', where, `${end}, found ${formatTime(row.expiresAt)}`);
    } else if (verifierCheckedAt !== null && expiresAt <= verifierCheckedAt) {
      const looked = formatTime(verifierCheckedAt);
      report(
        'expiry_overdue',
        where,
        `a verdict that it is over: the verifier looked at ${looked}`,
      );
    }
  }
}

/** Rows that say of an artifact that it will end though its AEP does not. */
export function checkStrayExpiries(chunk: Chunk, judged: JudgedChunk, report: Report): void {
  for (const { leafIndex, kind } of chunk.expiries) {
    const leaf = judged.get(leafIndex);
    // Of a leaf whose AEP is damaged nothing is known of its ends.
    if (leaf?.said === null || leaf?.ends.some((end) => end.kind === kind) === true) continue;
    const where = `svc.expiry leaf_index=${String(leafIndex)} artifact_kind=${kind}`;
    report('expiry_differs', where, 'no row: by its AEP it does not end');
  }
}
