import type { TestSnapshot } from './snapshot.js';

export type Standing = 'asserts' | 'over' | 'failed' | 'revoked';

/** Has this become of a proof, for the next tick to find. */
export function become(
  registry: TestSnapshot['registry'],
  proofId: string,
  standing: Standing,
): void {
  if (standing === 'over') registry.judge(proofId, { expired: ['passport'] });
  if (standing === 'failed') registry.judge(proofId, { outcome: 'fail' });
  if (standing === 'revoked') registry.revoke(proofId, 'certificate');
  registry.verify();
}
