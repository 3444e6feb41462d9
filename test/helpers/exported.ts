import { proofExportSchema, type ProofExport } from '#protocol/schemas/proof-export';
import type { TestLog } from './checkpoints.js';
import { headersFor, type TestEngine } from './engine.js';
import type { TestRegistry } from './registry.js';

/** The id of a proof of this action. */
export async function admittedProof(
  registry: TestRegistry,
  action = 'BOOK_RESERVATION',
): Promise<string> {
  const [id = ''] = await registry.admitAll([registry.item({ action })]);
  return id;
}

/** What the engine exports of a proof, once it is verified and under a checkpoint. */
export async function exportedProof(
  of: { registry: TestRegistry; log: TestLog; engine: TestEngine; key: string },
  id: string,
): Promise<ProofExport> {
  await of.registry.verifyAll();
  await of.log.publish();
  const reply = await of.engine.call({
    method: 'GET',
    path: `/v1/proofs/${id}/export`,
    headers: headersFor(of.key),
  });
  return proofExportSchema.parse(reply.json);
}
