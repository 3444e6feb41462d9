import { keyStateAt, type KeyedEntry } from '#protocol/keys';
import type { Check } from '#protocol/verify';
import type { Logger } from '#runtime/process/log';
import type { LeafEvidence } from '#sql/log/leaf-checks';

/** The compromised key, if it is the only reason why a proof fails. */
export function voidingKey(
  leaf: LeafEvidence | undefined,
  checks: readonly Check[],
  keys: readonly KeyedEntry[],
  logSize: number,
): string | null {
  const failed = checks.filter(({ result }) => result === 'fail');
  const keyId = leaf?.proof?.keyId ?? null;
  if (leaf === undefined || keyId === null) return null;
  if (failed.length !== 1 || failed[0]?.name !== 'signing_key') return null;
  const { state } = keyStateAt(keys, keyId, leaf.leafIndex, logSize);
  return state === 'compromised' ? keyId : null;
}

/** Collects the proofs that compromised keys void, to log one line per key and not per proof. */
export class VoidedProofs {
  private readonly ranges = new Map<string, { from: number; to: number; count: number }>();

  add(keyId: string, leafIndex: number): void {
    const range = this.ranges.get(keyId) ?? { from: leafIndex, to: leafIndex, count: 0 };
    this.ranges.set(keyId, {
      from: Math.min(range.from, leafIndex),
      to: Math.max(range.to, leafIndex),
      count: range.count + 1,
    });
  }

  /** Logs the leaf range and the number of proofs of each key, and resets. */
  report(log: Logger): void {
    for (const [keyId, range] of this.ranges) {
      log.warn(
        { key_id: keyId, ...range },
        'verifier: a signing key is compromised; its proofs in this range fail',
      );
    }
    this.ranges.clear();
  }
}
