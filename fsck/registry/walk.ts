import { decidedIn } from '#protocol/aep';
import { leafHash } from '#protocol/merkle';
import { TILE_WIDTH } from '#protocol/tiles';
import { nativeSha256 } from '#runtime/crypto/node';
import { readChunk, type Chunk } from '#sql/fsck/chunk';
import type { StoredLeaf } from '#sql/fsck/leaves';
import {
  checkOtherLeaf,
  expiriesOf,
  type JudgedChunk,
  judgeProof,
  type LeafCheckResult,
} from './check-leaf.js';
import { signedRoot } from './head.js';
import type { RegistryContext } from './context.js';
import { LogTree, type Anchor, type LogTreeState } from './log-tree.js';
import { PolicyInputs } from './policy-inputs.js';
import { checkStrayExpiries, checkVerdict, ChunkVerdicts, tellOtherKeys } from './verdicts.js';

export interface WalkState {
  log: LogTreeState;
  /** Where the next verdict on a range must begin. */
  verdictsTo: number;
  /** Leaves whose rows are missing or damaged; beyond some, only that there are more. */
  damaged: number[];
  isKeyHistoryBroken: boolean;
}

/** Remembered, so that what hangs on a damaged leaf is not told again. */
const DAMAGED_AT_MOST = 100_000;

/** One leaf with what is known of it so far. */
interface PlacedLeaf {
  leafIndex: number;
  /** Undefined when its row is missing. */
  leaf: StoredLeaf | undefined;
  /** What the tree holds there; undefined when nothing says it. */
  inTree: Uint8Array | undefined;
  /** Whether the row is what was hashed there. */
  isRight: boolean;
}

/** Goes through the log of the database in order, and holds every leaf against everything about it. */
export class RegistryWalk {
  private readonly log: LogTree;
  private readonly state: Omit<WalkState, 'log'>;
  private readonly inputs: PolicyInputs;

  constructor(
    private readonly ctx: RegistryContext,
    anchors: readonly Anchor[],
    state?: WalkState,
  ) {
    this.log = new LogTree(ctx, anchors, state?.log);
    const { verdictsTo = 0, damaged = [], isKeyHistoryBroken = false } = state ?? {};
    this.state = { verdictsTo, damaged: [...damaged], isKeyHistoryBroken };
    this.inputs = new PolicyInputs(ctx);
  }

  get position(): number {
    return this.log.size;
  }

  snapshot(): WalkState {
    return { ...this.state, log: this.log.state };
  }

  /** Leaves whose rows are missing or not what the log holds. */
  get damagedLeaves(): ReadonlySet<number> {
    return new Set(this.state.damaged);
  }

  /** Checks the next leaves, up to `to`: the end of a tile, or of what is checked. */
  async step(to: number): Promise<JudgedChunk> {
    const { findings, keys } = this.ctx;
    const { add } = findings;
    const from = this.log.size;
    const chunk = await readChunk(this.ctx.sql, from, to);
    const leaves = new Map(chunk.leaves.map((leaf) => [leaf.leafIndex, leaf]));
    const verdicts = new ChunkVerdicts(chunk);
    this.checkCoverage(chunk, to);
    const signed = this.signedRoots(chunk);
    const judged = new Map<number, LeafCheckResult>();
    for (let start = from; start < to; start += TILE_WIDTH) {
      const end = Math.min(start + TILE_WIDTH, to);
      const settled = this.log.settle(chunk, leaves, { start, end }, signed);
      for (let leafIndex = start; leafIndex < end; leafIndex += 1) {
        const leaf = leaves.get(leafIndex);
        const inTree = settled.hashes?.[leafIndex - start];
        const isRight = !settled.wrongRows.has(leafIndex - start);
        if (!isRight) this.tellDamaged(leafIndex, leaf);
        const found = await this.judge({ leafIndex, leaf, inTree, isRight }, verdicts);
        if (found.proofId !== null || !isRight) {
          judged.set(leafIndex, { ...found, proofId: found.proofId ?? '' });
        }
        const isAwaited =
          leafIndex < chunk.urgentUntil ||
          (found.isVoided &&
            (keys.voidedAt(found.said?.keyId ?? '', leafIndex) ?? -1) >= chunk.verified);
        const erasure = { isErased: leaf?.isErased === true, isDue: leaf?.isErasureDue === true };
        checkVerdict({ ...found, ...erasure, isAwaited }, verdicts.on(leafIndex), chunk, add);
        await this.log.append(inTree, signed, verdicts);
        if (!this.state.isKeyHistoryBroken) tellOtherKeys(verdicts, leafIndex + 1, keys, add);
      }
    }
    checkStrayExpiries(chunk, judged, add);
    await this.inputs.check();
    return judged;
  }

  /** When all leaves were walked: the tiles of the right edge, and what waited for the whole history. */
  async finish(): Promise<void> {
    const { findings, keys, size } = this.ctx;
    await this.log.finish();
    if (!this.state.isKeyHistoryBroken) keys.checkChain(findings.add);
    const unchecked = (what: string): void => findings.unchecked(what);
    keys.settle(this.state.isKeyHistoryBroken, findings.add, unchecked);
    const { verdictsTo } = this.state;
    if (verdictsTo >= size) return;
    const rest = String(size - verdictsTo - 1);
    const expected = `a verdict on leaf ${String(verdictsTo)} and ${rest} behind it`;
    findings.add('verdicts_behind', 'svc.verdict', expected);
  }

  /** What is found of one leaf; `proofId` is null when it is none. Nothing can be asserted of a damaged one. */
  private async judge(
    { leafIndex, leaf, inTree, isRight }: PlacedLeaf,
    verdicts: ChunkVerdicts,
  ): Promise<Omit<LeafCheckResult, 'proofId'> & { proofId: string | null }> {
    const found = { leafIndex, proofId: null, verdicts: verdicts.on(leafIndex) };
    const fails = { ...found, verifies: false, isVoided: false, said: null, ends: [] };
    if (leaf === undefined) return fails;
    if (leaf.kind !== 'proof') {
      return { ...fails, verifies: isRight && (await checkOtherLeaf(this.ctx, leaf)) };
    }
    const { findings, keys } = this.ctx;
    const ownHash = leafHash(nativeSha256, leaf.entry);
    const { verifies, aep, faults } = judgeProof(leaf, keys, inTree ?? ownHash, isRight);
    const proofId = leaf.filedUnder ?? '';
    for (const { code, table, expected } of faults) {
      const where = `svc.${table} proof_id=${proofId} leaf_index=${String(leafIndex)}`;
      findings.add(code, where, expected);
    }
    if (!isRight) return fails;
    if (verifies === null && leaf.proof !== null && !leaf.isErased)
      keys.stranger(leaf.proof.keyId, leafIndex);
    if (aep === null) return { ...fails, proofId, verifies };
    this.inputs.seen(aep.policy.input_hash, proofId);
    const { environment, key_id: keyId } = aep;
    const said = { ...decidedIn(aep), environment, keyId };
    const isVoided = verifies === false && faults.length === 0;
    return { ...found, proofId, verifies, isVoided, said, ends: expiriesOf(aep) };
  }

  private signedRoots(chunk: Chunk): Map<number, Uint8Array> {
    const roots = new Map<number, Uint8Array>();
    for (const row of chunk.checkpoints) {
      const root = signedRoot(this.ctx, row);
      if (root !== null) roots.set(row.treeSize, root);
    }
    return roots;
  }

  /** Verdicts on ranges follow one another without a gap. */
  private checkCoverage(chunk: Chunk, to: number): void {
    const ranges = chunk.verdicts
      .filter((verdict) => verdict.frontier)
      .sort((a, b) => a.lastIndex - b.lastIndex);
    for (const { firstIndex, lastIndex, verdictId } of ranges) {
      const { verdictsTo } = this.state;
      if (lastIndex < verdictsTo || verdictsTo >= to) continue;
      if (firstIndex !== verdictsTo) {
        const where = `svc.verdict verdict_id=${String(verdictId)}`;
        const expected = `a verdict on leaf ${String(verdictsTo)} before that on ${String(firstIndex)}`;
        this.ctx.findings.add('verdict_gap', where, expected);
      }
      this.state.verdictsTo = lastIndex + 1;
    }
  }

  private tellDamaged(leafIndex: number, leaf: StoredLeaf | undefined): void {
    const { add } = this.ctx.findings;
    const where = `svc.log_entry leaf_index=${String(leafIndex)}`;
    if (this.state.damaged.length < DAMAGED_AT_MOST) this.state.damaged.push(leafIndex);
    // A leaf that is gone may have been a key's; a row says of itself what it is.
    if (leaf === undefined || leaf.kind === 'key') this.state.isKeyHistoryBroken = true;
    if (leaf === undefined) add('leaf_missing', where, 'a row for the leaf');
    else if (leaf.kind === 'key') {
      add('key_history_broken', where, 'the key entry that the log holds there');
    } else add('leaf_altered', where, 'the entry that the log holds there');
  }
}
