import { chmod, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { demoConfig } from '#runtime/config';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { type ProgramContext, runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/package-root';
import { admit, readActions, type Admitted } from './demo/actions.js';
import { follow, progress, type Verdict, verdictTable } from './demo/follow.js';
import { checkOffline, exportProof } from './demo/offline.js';
import { startStack, type Stack } from './stack.js';

const VERDICT_PATIENCE_MS = 30_000;
const DRAIN_MS = 60_000;

/** A temporary data directory, removed when the demo ends. */
async function temporaryData(ctx: ProgramContext): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'svc-demo-'));
  // When root starts the demo, the database runs as another account and needs access.
  await chmod(dataDir, 0o755);
  ctx.onStop(async () => {
    await removeEmbeddedPostgres(dataDir);
    await rm(dataDir, { recursive: true, force: true });
  });
  return dataDir;
}

async function showOffline(stack: Stack, { receipt }: Admitted): Promise<void> {
  const exported = await exportProof(stack, receipt.registry_proof_id);
  const result = checkOffline(stack, exported);
  if (!result.decidable || !result.authentic || result.included !== true) {
    throw new OperatorError(`offline verification failed:  ${JSON.stringify(result)}`);
  }
  console.log(`
Proof ${receipt.registry_proof_id}, checked offline under the pinned keys:
  authentic: yes · included: yes · status: ${result.status}`);
}

async function demonstrate(ctx: ProgramContext): Promise<void> {
  console.log('Starting a database and the five programs …');
  const stack = await startStack(demoConfig(await temporaryData(ctx)), ctx);

  const actions = await readActions(join(packageRoot, 'examples', 'agent-actions.ndjson'));
  console.log(`Admitting ${actions.length} agent actions at ${stack.engineUrl}`);
  const admitted = await Promise.all(actions.map((action) => admit(stack, action)));

  const bar = progress('public verdicts', admitted.length);
  const verdicts: Verdict[] = await Promise.all(
    admitted.map(async (one) => {
      const verdict = await follow(stack.publicUrl, one, VERDICT_PATIENCE_MS);
      bar.step();
      return verdict;
    }),
  );
  bar.end();

  console.log(`\n${verdictTable(verdicts)}`);
  for (const { action, denial } of admitted) {
    if (denial !== null)
      console.log(`\n${action.action} was denied by policy, with a proof: ${denial}`);
  }
  const without = verdicts.filter(({ assertsValidity }) => !assertsValidity);
  if (without.length > 0) {
    throw new OperatorError(`${without.length} proofs are not publicly reported as valid`);
  }
  const first = admitted[0];
  if (first === undefined) throw new OperatorError('the example file has no actions');
  await showOffline(stack, first);
  console.log('\nStopping all programs …');
}

const code = await runProgram('demo', demonstrate, {
  drainMs: DRAIN_MS,
  untilMainReturns: true,
  logLevel: 'error',
});
process.exit(code);
