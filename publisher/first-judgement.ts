import { eventsOf, publishedEvents } from '#protocol/history';
import type { LeafVerdict, ProofLeaf, RegistryView } from './registry-view.js';
import type { Judgement } from './render.js';
import type { Revocations } from './revocations.js';

/**
 * What is said of proofs that were never published, by leaf index. Of nearly all the verdict in
 * force says everything; only of those with a verdict of their own, or a revocation, is asked what
 * else was found before.
 */
export async function firstVerdicts(
  registry: RegistryView,
  proofs: readonly ProofLeaf[],
  verdicts: ReadonlyMap<number, LeafVerdict>,
  revocations: Revocations,
): Promise<Map<number, Judgement>> {
  const judgements = new Map<number, Judgement>();
  const eventful: ProofLeaf[] = [];
  for (const leaf of proofs) {
    const verdict = verdicts.get(leaf.leafIndex);
    if (verdict?.own === true || revocations.has(leaf.proofId)) eventful.push(leaf);
    else judgements.set(leaf.leafIndex, { verdict, revoked: [] });
  }
  if (eventful.length === 0) return judgements;
  const histories = await registry.verdictHistories(eventful.map(({ leafIndex }) => leafIndex));
  for (const leaf of eventful) {
    const history = {
      verdicts: histories.get(leaf.leafIndex) ?? [],
      revocations: revocations.get(leaf.proofId) ?? [],
    };
    judgements.set(leaf.leafIndex, {
      // Of the same reading as the events: no record asserts what its own history denies.
      verdict: history.verdicts.at(-1),
      revoked: history.revocations.map(({ kind }) => kind),
      events: publishedEvents(eventsOf(leaf, history)),
    });
  }
  return judgements;
}
