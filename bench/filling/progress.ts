import type { Pool } from '#sql/db/transaction';
import { treeSize } from '#sql/log/log';
import { verifiedPrefix } from '#sql/log/verdicts';
import { publishedManifest } from '../service/published.js';
import type { BenchRegistry } from '../service/registry.js';
import { say } from '../say.js';

const TELL_EVERY_MS = 5_000;

/** A line now and then, which a log can hold. */
export class Progress {
  private told = performance.now();
  private before: number | null = null;

  constructor(
    private readonly registry: BenchRegistry,
    private readonly owner: Pool,
    private readonly proofs: number,
  ) {}

  async tell(now = false): Promise<void> {
    const elapsed = performance.now() - this.told;
    if (!now && elapsed < TELL_EVERY_MS) return;
    this.told = performance.now();
    const leaves = await treeSize(this.owner);
    const verified = (await verifiedPrefix(this.owner))?.treeSize ?? 0;
    const published = (await publishedManifest(this.registry))?.tree_size ?? 0;
    const rate = ((leaves - (this.before ?? leaves)) / elapsed) * 1000;
    this.before = leaves;
    say(
      `${String(leaves)} leaves for ${String(this.proofs)} proofs (${rate.toFixed(0)}/s), ${String(verified)} verified, ${String(published)} published`,
    );
  }
}
