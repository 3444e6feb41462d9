import { chmod, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SingleBar } from 'cli-progress';
import { demoConfig } from '#runtime/config';
import { dropCluster } from '#runtime/embedded/place';
import { type ProgramContext, runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { packageRoot } from '#runtime/process/files';
import {
  executeIntentHttp,
  exportProofHttp,
  isDenial,
  SdkError,
  verifyOffline,
  waitForVerdictHttp,
  type ExecuteInput,
  type OfflineResult,
} from '#sdk/index';
import { table } from './admin/command.js';
import { startStack, type Stack } from './stack.js';

const TIMEOUT_MS = 30_000;

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
  const actions = lines.map((line) => JSON.parse(line) as ExecuteInput);
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
      const verdict = await follow(stack, one.receipt);
      bar.increment();
      return { admitted: one, verdict, afterMs: performance.now() - one.at };
    }),
  );
  bar.stop();

  const rows = verdicts.map(({ admitted: { action, receipt }, verdict, afterMs }) => ({
    action,
    receipt: receipt.status,
    'public verdict': verdict?.verification_status,
    after: `${(afterMs / 1000).toFixed(1)} s`,
    proof: receipt.registry_proof_id,
  }));
  console.log(`\n${table(rows).replaceAll(/^(?=.)/gm, '  ')}`);
  for (const { action, denial } of admitted) {
    if (denial !== undefined)
      console.log(`${action} was denied by policy, with a proof: ${denial}`);
  }
  const without = verdicts.filter(({ verdict }) => verdict?.can_assert_validity !== true);
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

/** Admits one execution. Returns the receipt of an admission or denial, else throws. */
async function admit(stack: Stack, input: ExecuteInput) {
  const { action } = input;
  try {
    const receipt = await executeIntentHttp({ ...stack, timeoutMs: TIMEOUT_MS }, input);
    return { action, receipt, denial: undefined, at: performance.now() };
  } catch (error) {
    if (!isDenial(error)) throw error;
    const { receipt } = error.denial;
    return { action, receipt, denial: error.problem?.detail, at: performance.now() };
  }
}

/** The public verdict on a proof; null after a timeout. */
async function follow(stack: Stack, receipt: { registry_proof_id: string }) {
  const input = { proof_id: receipt.registry_proof_id };
  return waitForVerdictHttp({ ...stack, timeoutMs: TIMEOUT_MS }, input).catch((error: unknown) => {
    if (error instanceof SdkError && error.code === 'timeout') return null;
    throw error;
  });
}

/** Exports a proof and checks it with the stack's keys, not with keys from the document. */
async function checkOffline(stack: Stack, proofId: string): Promise<OfflineResult> {
  const { aepPublicKey, logVkey: vkey } = stack;
  // The checkpoint that an export needs precedes the public verdict.
  const { response: exported } = await exportProofHttp(stack, { proof_id: proofId });
  const log = { vkey, origin: vkey.slice(0, vkey.indexOf('+')) };
  return verifyOffline(exported, { aepKeys: [aepPublicKey], log });
}

async function temporaryData(ctx: ProgramContext): Promise<string> {
  const dataDir = await mkdtemp(join(tmpdir(), 'svc-demo-'));
  // When root starts the demo, the database runs as another account and needs access.
  await chmod(dataDir, 0o755);
  ctx.onStop(async () => {
    await dropCluster(dataDir);
    await rm(dataDir, { recursive: true, force: true });
  });
  return dataDir;
}
