import { attempt } from '#protocol/errors';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, parseVkey, type Vkey } from '#protocol/note';
import { witnessConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { listen } from '#runtime/http/server';
import { systemClock } from '#runtime/clock';
import { type ProgramContext, reportReady, runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { witnessMetrics } from './metrics/witness.js';
import { pinning } from './trust.js';
import { addLog, openCosignedHeads } from './witness/heads.js';
import { witnessHandler } from './witness/witness.js';
import { runService } from './service.js';

type Config = ReturnType<typeof witnessConfig>;

/** The keys of each log, by origin. */
function logsOf({ witnessLogVkeys }: Config): Map<string, Vkey[]> {
  const logs = new Map<string, Vkey[]>();
  for (const text of witnessLogVkeys) {
    const vkey = pinning('WITNESS_LOG_VKEYS', () => parseVkey(text, nativeSha256));
    logs.set(vkey.name, [...(logs.get(vkey.name) ?? []), vkey]);
  }
  return logs;
}

async function addNewLog({ log }: ProgramContext): Promise<void> {
  const config = witnessConfig();
  const origin = given[1] ?? '';
  if (given[0] !== '--new-log' || given.length !== 2 || !logsOf(config).has(origin))
    throw new OperatorError('expected --new-log and the origin of a log in WITNESS_LOG_VKEYS');
  await addLog(config.witnessDir, origin);
  log.info({ origin }, 'witness: log added; this witness now cosigns any first tree of it');
}

const given = process.argv.slice(2);
if (given.length > 0)
  process.exit(await runProgram('witness', addNewLog, { untilMainReturns: true }));

await runService('witness', witnessConfig, async (program) => {
  const { config, log, ops } = program;
  const key = await openSigner(config.witnessKeyFile);
  const { witnessName: name } = config;
  const logs = logsOf(config);
  const heads = await openCosignedHeads(config.witnessDir, (error) => program.fail(error));
  program.onStop(heads.unlock);
  for (const origin of logs.keys()) {
    if (attempt(() => heads.latest(origin)) !== null) continue;
    log.warn(
      { origin },
      'witness: WITNESS_DIR has no tree head of a log, so this witness cosigns nothing of it: if the log is new to this witness, run the program with --new-log and the origin',
    );
  }
  const handler = witnessHandler(
    {
      signer: noteSigner(nativeSha256, name, key, COSIGNATURE_TYPE),
      logs,
      heads,
      clock: systemClock,
    },
    log,
    witnessMetrics(ops.registry),
  );
  const server = await listen(handler, {
    host: config.listenAddress,
    port: config.witnessPort,
    portVariable: 'WITNESS_PORT',
  });
  program.onStop(() => server.close());
  ops.readyWhen(() => ({ ready: true, details: { status: 'ready' } }));
  log.info(
    {
      url: server.url,
      witness_vkey: formatVkey(nativeSha256, name, key.publicKey, COSIGNATURE_TYPE),
      logs: [...logs.keys()],
    },
    'witness started: add this vkey and URL to the witness policies of the logs',
  );
  reportReady(server.url);
});
