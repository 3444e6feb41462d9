import { decidedIn } from '#protocol/aep';
import { leafHash } from '#protocol/merkle';
import type { Aep } from '#protocol/schemas/aep';
import { TILE_WIDTH } from '#protocol/tiles';
import { parseTime } from '#protocol/time';
import { nativeSha256 } from '#runtime/crypto/node';
import { activeSince } from '#sql/fsck/admissions';
import { readChunk, type Chunk, type StoredLeaf } from '#sql/fsck/log';
import { expiriesOf } from '#sql/log/leaf-checks';
import {
  checkOtherLeaf,
  checkProof,
  type ChunkCheckResult,
  type LeafCheckResult,
} from './check-leaf.js';
import { signedRoot, LogTree, type Anchor, type LogTreeState } from './log-tree.js';
import { BudgetChains, type BudgetChainsState } from './budgets.js';
import type { RegistryContext } from './context.js';
import { VerdictEntries, type VerdictEntriesState } from './verdict-entries.js';
import { ChunkVerdicts } from './verdicts.js';

export interface WalkState {
  log: LogTreeState;
  verdictEntries: VerdictEntriesState;
  budgets: BudgetChainsState;
  /** The first leaf that the next range verdict must cover. */
  verdictsTo: number;
  /** Whether the row of a leaf is missing or differs from the log. */
  hasDamagedLeaf: boolean;
  isKeyHistoryBroken: boolean;
}

interface PlacedLeaf {
  leafIndex: number;
  /** The row of the leaf; undefined when missing. */
  leaf: StoredLeaf | undefined;
  /** The hash in the tree; undefined when unknown. */
  inTree: Uint8Array | undefined;
  /** Whether the row has the hash in the tree. */
  isRight: boolean;
}

/** Walks the log in order and compares each leaf with all rows about it. */
export class RegistryWalk {
  private readonly log: LogTree;
  private readonly verdictEntries: VerdictEntries;
  private readonly budgets: BudgetChains;
  /** The first activation of each policy set, by digest; null without an activation. */
  private readonly activeSince = new Map<string, number | null>();
  readonly state: Omit<WalkState, 'log' | 'verdictEntries' | 'budgets'>;

  constructor(
    readonly ctx: RegistryContext,
    anchors: readonly Anchor[],
    state?: WalkState,
  ) {
    this.log = new LogTree(ctx, anchors, state?.log);
    this.verdictEntries = new VerdictEntries(ctx, state?.verdictEntries);
    this.budgets = new BudgetChains(ctx, state?.budgets);
    const { verdictsTo = 0, hasDamagedLeaf = false, isKeyHistoryBroken = false } = state ?? {};
    this.state = { verdictsTo, hasDamagedLeaf, isKeyHistoryBroken };
  }

  get position(): number {
    return this.log.size;
  }

  snapshot(): WalkState {
    return {
      ...this.state,
      log: this.log.state,
      verdictEntries: this.verdictEntries.state,
      budgets: this.budgets.state,
    };
  }

  /** Checks the next leaves up to `to`, which must be the end of a tile or of the walk. */
  async step(to: number): Promise<ChunkCheckResult> {
    const { findings, keys } = this.ctx;
    const from = this.log.size;
    const chunk = await readChunk(this.ctx.sql, from, to);
    const leaves = new Map(chunk.leaves.map((leaf) => [leaf.leafIndex, leaf]));
    const verdicts = new ChunkVerdicts(chunk, findings.add);
    this.checkCoverage(verdicts, to);
    const signed = this.signedRoots(chunk);
    const results = new Map<number, LeafCheckResult>();
    for (let start = from; start < to; start += TILE_WIDTH) {
      const end = Math.min(start + TILE_WIDTH, to);
      const resolved = this.log.resolve(chunk, leaves, { start, end }, signed);
      for (let leafIndex = start; leafIndex < end; leafIndex += 1) {
        const placed: PlacedLeaf = {
          leafIndex,
          leaf: leaves.get(leafIndex),
          inTree: resolved.hashes?.[leafIndex - start],
          isRight: !resolved.wrongRows.has(leafIndex - start),
        };
        const found = await this.checkLeaf(placed);
        if (found.proofId !== null || !placed.isRight) results.set(leafIndex, found);
        this.compareVerdicts(placed, found, verdicts, chunk);
        await this.log.append(placed.inTree, signed, verdicts);
        await this.verdictEntries.checkAt(leafIndex + 1, () => this.log.root());
        if (!this.state.isKeyHistoryBroken) verdicts.checkKeys(leafIndex + 1, keys);
      }
    }
    verdicts.checkOrphanExpiries(results);
    return results;
  }

  private compareVerdicts(
    { leafIndex, leaf, isRight }: PlacedLeaf,
    found: LeafCheckResult,
    verdicts: ChunkVerdicts,
    chunk: Chunk,
  ): void {
    const voidedAt = this.ctx.keys.states.voidedAt(found.decision?.keyId ?? '', leafIndex) ?? -1;
    const isAwaited =
      leafIndex < chunk.urgentUntil || (found.isVoided && voidedAt >= chunk.verified);
    const erasure = { isErased: leaf?.isErased === true, isDue: leaf?.isErasureDue === true };
    verdicts.checkLeaf({ ...found, ...erasure, isAwaited });
    // The tenant of a damaged proof is unknown.
    if (leaf !== undefined && isRight && (found.decision !== null || leaf.isErased))
      verdicts.checkException(leaf);
  }

  /** Checks the partial tiles, and reports the findings that depend on the whole key history. */
  async finish(): Promise<void> {
    const { findings, keys, size } = this.ctx;
    await this.log.finish();
    await this.verdictEntries.finish();
    await this.budgets.finish();
    if (!this.state.isKeyHistoryBroken) keys.checkChain(findings.add);
    keys.reportUnknownKeys(this.state.isKeyHistoryBroken, findings.add, findings.unchecked);
    const { verdictsTo } = this.state;
    if (verdictsTo >= size) return;
    const expected = `a verdict on leaf ${verdictsTo} and ${size - verdictsTo - 1} later leaves`;
    findings.add('verdicts_behind', 'svc.verdict', expected);
  }

  /** A damaged leaf never verifies. */
  private async checkLeaf(placed: PlacedLeaf): Promise<LeafCheckResult> {
    const { leafIndex, leaf, inTree, isRight } = placed;
    if (!isRight) this.reportDamagedLeaf(leafIndex, leaf);
    const nothing = { proofId: null, isVoided: false, decision: null, ends: [] };
    const fails = { leafIndex, verifies: false, ...nothing };
    if (leaf === undefined) {
      this.budgets.skip(leaf);
      return fails;
    }
    if (leaf.kind !== 'proof') {
      const isSound = isRight && (await checkOtherLeaf(this.ctx, leaf, this.state.hasDamagedLeaf));
      return { ...fails, verifies: isSound };
    }
    const { findings, keys } = this.ctx;
    const ownHash = leafHash(nativeSha256, leaf.entry);
    const { verifies, aep, faults } = checkProof(leaf, keys, inTree ?? ownHash, isRight);
    const proofId = leaf.filedUnder ?? '';
    for (const { code, table, expected } of faults) {
      const where = `svc.${table} proof_id=${proofId} leaf_index=${leafIndex}`;
      findings.add(code, where, expected);
    }
    if (aep === null || !isRight) this.budgets.skip(leaf);
    else {
      await this.budgets.check(leaf, aep.decision.effect);
      await this.checkActivation(aep);
    }
    if (!isRight) return fails;
    if (verifies === null && leaf.proof !== null && !leaf.isErased)
      keys.addUnknownKey(leaf.proof.keyId, leafIndex);
    if (aep === null) return { ...fails, proofId, verifies };
    const { environment, key_id: keyId } = aep;
    const decision = { ...decidedIn(aep), environment, keyId };
    const isVoided = verifies === false && faults.length === 0;
    return { leafIndex, proofId, verifies, isVoided, decision, ends: expiriesOf(aep) };
  }

  /** The policy set of a proof must have been active when the admission was accepted. */
  private async checkActivation({ policy: { digest }, accepted_at: at }: Aep): Promise<void> {
    const { sql, findings } = this.ctx;
    const known = this.activeSince;
    if (!known.has(digest)) known.set(digest, await activeSince(sql, digest));
    if ((known.get(digest) ?? Infinity) <= parseTime(at)) return;
    const where = `svc.policy_activation digest=${digest}`;
    const expected = `an activation at ${at}, when a proof was accepted, or earlier`;
    findings.add('policy_activation_differs', where, expected);
  }

  private signedRoots(chunk: Chunk): Map<number, Uint8Array> {
    return new Map(
      chunk.checkpoints.flatMap((row) => {
        const root = signedRoot(this.ctx, row);
        return root === null ? [] : [[row.treeSize, root]];
      }),
    );
  }

  /** Range verdicts must be contiguous. */
  private checkCoverage({ ranges }: ChunkVerdicts, to: number): void {
    for (const { firstIndex, lastIndex, verdictId } of ranges) {
      const { verdictsTo } = this.state;
      if (lastIndex < verdictsTo || verdictsTo >= to) continue;
      if (firstIndex !== verdictsTo) {
        const where = `svc.verdict verdict_id=${verdictId}`;
        const expected = `a verdict on leaf ${verdictsTo} before the verdict on leaf ${firstIndex}`;
        this.ctx.findings.add('verdict_gap', where, expected);
      }
      this.state.verdictsTo = lastIndex + 1;
    }
  }

  private reportDamagedLeaf(leafIndex: number, leaf: StoredLeaf | undefined): void {
    const { add } = this.ctx.findings;
    const where = `svc.log_entry leaf_index=${leafIndex}`;
    this.state.hasDamagedLeaf = true;
    // A missing leaf may have been a key entry; a damaged row still has its kind.
    if (leaf === undefined || leaf.kind === 'key') this.state.isKeyHistoryBroken = true;
    if (leaf === undefined) add('leaf_missing', where, 'a row for the leaf');
    else if (leaf.kind === 'key') {
      add('key_history_broken', where, 'the key entry that the log has at this index');
    } else add('leaf_altered', where, 'the entry that the log has at this index');
  }
}
