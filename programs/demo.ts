import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SingleBar } from 'cli-progress';
import { demoConfig } from '#runtime/config';
import { removeEmbeddedPostgres } from '#runtime/embedded/start';
import { type ProgramContext, runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/package-root';
import { table } from './admin/print.js';
import { actionSchema, admit, checkOffline, follow } from './demo/requests.js';
import { startStack } from './stack.js';

const code = await runProgram('demo', demonstrate, {
  drainMs: 60_000,
  untilMainReturns: true,
  logLevel: 'error',
});
process.exit(code);

async function demonstrate(ctx: ProgramContext): Promise<void> {
  console.log('Starting a database and the five programs …');
  const stack = await startStack(demoConfig(await temporaryData(ctx)), ctx);

  const file = join(packageRoot, 'examples', 'agent-actions.ndjson');
  const lines = (await readFile(file, 'utf8')).split('\n').filter((line) => line !== '');
  const actions = lines.map((line) => actionSchema.parse(JSON.parse(line)));
  console.log(`Admitting ${actions.length} agent actions at ${stack.engineUrl}`);
  const admitted = await Promise.all(actions.map((action) => admit(stack, action)));

  const bar = new SingleBar({
    format: 'public verdicts {bar} {value} of {total}',
    hideCursor: true,
    barsize: 30,
    stream: process.stdout,
  });
  bar.start(admitted.length, 0);
  const verdicts = await Promise.all(
    admitted.map(async (one) => {
      const verdict = await follow(stack, one);
      bar.increment();
      return verdict;
    }),
  );
  bar.stop();

  const rows = verdicts.map(({ admitted: { action, receipt }, status, afterMs }) => ({
    action,
    receipt: receipt.status,
    'public verdict': status,
    after: `${(afterMs / 1000).toFixed(1)} s`,
    proof: receipt.registry_proof_id,
  }));
  console.log(`\n${table(rows).replaceAll(/^(?=.)/gm, '  ')}`);
  for (const { action, denial } of admitted) {
    if (denial !== null) console.log(`${action} was denied by policy, with a proof: ${denial}`);
  }
  const without = verdicts.filter(({ assertsValidity }) => !assertsValidity);
  if (without.length > 0) {
    throw new OperatorError(`${without.length} proofs are not publicly reported as valid`);
  }

  const proofId = admitted[0]?.receipt.registry_proof_id;
  if (proofId === undefined) throw new OperatorError('the example file has no actions');
  const result = await checkOffline(stack, proofId);
  if (!result.decidable || !result.authentic || result.included !== true) {
    throw new OperatorError(`offline verification failed: ${JSON.stringify(result)}`);
  }
  console.log(`
Proof ${proofId}, checked offline under the pinned keys:
  authentic: yes · included: yes · status: ${result.status}

Stopping all programs …`);
}

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
