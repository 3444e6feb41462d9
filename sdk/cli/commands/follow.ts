import type { Command } from 'commander';
import { isBatchId, isProofId } from '../../../protocol/ids.js';
import { followBatchHttp, waitForVerdictHttp } from '../../index.js';
import { openBatchOutput } from '../batch-output.js';
import { type AddCommand, type Invocation, UsageError } from '../config.js';
import type { ExitCode } from '../exit-code.js';
import { printLookup } from './lookup.js';

export function addFollow(add: AddCommand): Command {
  return add(
    {
      name: 'follow',
      summary: 'Wait for the public verdict on a proof, or for all outcomes of a batch',
      description:
        'A proof needs SVC_PUBLIC_URL; a batch needs SVC_ENGINE_URL, SVC_TENANT_ID and a key. Exits like `svc lookup` and `svc admit`, and 3 after --timeout.',
      examples: ['svc follow 019aa2c1e07b7c0f8a3e5d6b7c8d9e0f --timeout 30'],
    },
    follow,
  ).argument('<PROOF_ID|BATCH_ID>');
}

async function follow(invocation: Invocation): Promise<ExitCode> {
  const { argument: id } = invocation;
  if (isProofId(id)) {
    const found = await waitForVerdictHttp(invocation.registry(), { proof_id: id });
    return printLookup(invocation, found);
  }
  if (!isBatchId(id)) throw new UsageError(`${id} is neither a proof id nor a batch id`);
  const output = openBatchOutput(invocation);
  const results = await followBatchHttp(invocation.engine(), { batch_id: id });
  for (const result of results) output.add(result);
  return output.finish();
}
