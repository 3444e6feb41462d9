import { describe, expect, it } from 'vitest';
import { insertVerdicts, verdictsForLeaves, type NewVerdict } from '#sql/log/verdicts';
import { useRegistry } from '../fixtures/use-registry.js';

const { registry } = useRegistry('test');

describe('effective verdict of a leaf', () => {
  const verdict = (
    range: { first: number; last: number; treeSize: number },
    outcome: 'pass' | 'fail',
    subtrees: Buffer | null = null,
  ): NewVerdict => ({
    prefix: subtrees && { subtrees, keysDigest: Buffer.alloc(32) },
    firstIndex: range.first,
    lastIndex: range.last,
    treeSize: range.treeSize,
    root: Buffer.alloc(32),
    outcome,
    expired: [],
    checks: [],
  });
  const inForce = async () => {
    const { sql } = registry.verify;
    const leaves = [0, 1, 2, 3, 4, 5];
    const said = await verdictsForLeaves(sql, leaves);
    return leaves.map((leaf) => said.get(leaf)?.outcome ?? null);
  };
  const say = (...verdicts: NewVerdict[]) => insertVerdicts(registry.verify.sql, verdicts);
  const leaf = (index: number, treeSize: number, outcome: 'pass' | 'fail') =>
    verdict({ first: index, last: index, treeSize }, outcome);

  it('is the last verdict for the largest tree', async () => {
    await say(
      verdict({ first: 0, last: 1, treeSize: 2 }, 'pass', Buffer.alloc(32)),
      verdict({ first: 2, last: 4, treeSize: 5 }, 'pass', Buffer.alloc(64)),
    );
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'pass', 'pass', null]);
    await say(leaf(0, 5, 'fail'), leaf(3, 5, 'fail'));
    expect(await inForce()).toEqual(['fail', 'pass', 'pass', 'fail', 'pass', null]);
    // A verdict for a smaller tree is never effective, even if it is written later.
    await say(leaf(0, 4, 'pass'));
    expect(await inForce()).toEqual(['fail', 'pass', 'pass', 'fail', 'pass', null]);
    await say(leaf(0, 5, 'pass'), leaf(3, 6, 'pass'), leaf(4, 5, 'fail'));
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'pass', 'fail', null]);
    await say(leaf(3, 6, 'fail'));
    expect(await inForce()).toEqual(['pass', 'pass', 'pass', 'fail', 'fail', null]);
  });

  it('cannot be hidden, because verdicts on ranges must be contiguous and must not overlap', async () => {
    await say(verdict({ first: 0, last: 1, treeSize: 2 }, 'pass', Buffer.alloc(32)));
    const again = say(verdict({ first: 0, last: 1, treeSize: 2 }, 'fail', Buffer.alloc(32)));
    await expect(again).rejects.toThrow(/verdict_frontier/);
    await expect(say(verdict({ first: 0, last: 1, treeSize: 2 }, 'pass'))).rejects.toThrow(/check/);
  });
});
