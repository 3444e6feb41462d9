import { expect } from 'vitest';
import type { ProofExport } from '#protocol/schemas/proof-export';
import { VERIFY_CHECK_NAMES, verdictSchema, type Verdict } from '#protocol/schemas/verdict';
import { headersFor, type Reply, type TestEngine } from './engine.js';

export const REQUEST = 'svc.verification.verify_request/1.0';

/** The three ways in which a proof can be submitted. */
export const byId = (proofId: string) => ({ schema_version: REQUEST, proof_id: proofId });
export const byAep = ({ aep, envelope }: Pick<ProofExport, 'aep' | 'envelope'>) => ({
  schema_version: REQUEST,
  aep,
  envelope,
});
export const allWays = (document: ProofExport) => [
  document,
  byAep(document),
  byId(document.proof_id),
];

export function postProof(
  engine: TestEngine,
  body: unknown,
  apiKey: string,
  tenant: string,
): Promise<Reply> {
  return engine.call({
    path: '/v1/proofs/verify',
    headers: headersFor(apiKey, tenant),
    body: typeof body === 'string' ? body : JSON.stringify(body),
  });
}

/** The verdict that is answered: of all checks, and consistent. */
export function verdictIn(reply: Reply): Verdict {
  expect(reply.status, reply.bytes.toString()).toBe(200);
  const verdict = verdictSchema.parse(reply.json);
  expect(verdict.checks.map(({ name }) => name)).toEqual([...VERIFY_CHECK_NAMES]);
  expect(verdict.can_assert_validity).toBe(verdict.cause === null);
  return verdict;
}

export function checkOf(verdict: Verdict, name: string): string | undefined {
  return verdict.checks.find((check) => check.name === name)?.result;
}
