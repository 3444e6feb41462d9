import { isBatchId, isProofId } from '../../../protocol/ids.js';
import { followBatchHttp, waitForVerdictHttp } from '../../index.js';
import type { Command, Invocation } from '../command.js';
import { EXIT, type ExitCode } from '../exit-code.js';
import { countsOf, itemsExit, sayCounts, sayItem } from '../results.js';
import { UsageError } from '../usage-error.js';
import { lookupExit, show } from './lookup.js';

export const follow: Command = {
  name: 'follow',
  summary: 'Wait for the public verdict on a proof, or until a batch is settled',
  usage: 'PROOF_ID | BATCH_ID',
  takes: { least: 1, most: 1 },
  description:
    'A proof needs SVC_PUBLIC_URL, a batch SVC_ENGINE_URL, SVC_TENANT_ID and a key. Exits like\n' +
    '`svc lookup` and `svc admit`; 3 when --timeout is over first.',
  options: {},
  examples: ['svc follow 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --timeout 30'],
  run: (invocation) => {
    const [id = ''] = invocation.args;
    if (isProofId(id)) return followProof(invocation, id);
    if (isBatchId(id)) return followBatch(invocation, id);
    throw new UsageError(`${id} is neither a proof id nor a batch id`);
  },
};

async function followProof(
  { json, registry, terminal }: Invocation,
  id: string,
): Promise<ExitCode> {
  const found = await waitForVerdictHttp(registry(), { proof_id: id });
  if (json) terminal.printJson(found);
  else show(terminal, id, found);
  return lookupExit(found);
}

async function followBatch({ json, engine, terminal }: Invocation, id: string): Promise<ExitCode> {
  const counts = countsOf();
  let worst: ExitCode = EXIT.yes;
  for (const result of await followBatchHttp(engine(), { batch_id: id })) {
    counts.add(result);
    worst = itemsExit(worst, result);
    if (json) terminal.printJson(result);
    else if (result.state !== 'admitted') sayItem(terminal, result);
  }
  if (!json) sayCounts(terminal, counts.all, worst);
  return worst;
}
