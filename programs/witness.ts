import { attempt } from '#protocol/errors';
import { COSIGNATURE_TYPE, formatVkey, noteSigner, parseVkey, type Vkey } from '#protocol/note';
import { witnessConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { listen } from '#runtime/http/server';
import { systemClock } from '#runtime/clock';
import { reportReady } from '#runtime/process/lifecycle';
import { witnessMetrics } from './metrics/witness.js';
import { pinning } from './trust.js';
import { openCosignedHeads } from './witness/heads.js';
import { witnessHandler } from './witness/witness.js';
import { runService } from './service.js';

await runService('witness', witnessConfig, async (program) => {
  const { config, log, ops } = program;
  const key = await openSigner(config.witnessKeyFile);
  const { witnessName: name } = config;
  const logs = new Map<string, Vkey[]>();
  for (const text of config.witnessLogVkeys) {
    const vkey = pinning('WITNESS_LOG_VKEYS', () => parseVkey(text, nativeSha256));
    logs.set(vkey.name, [...(logs.get(vkey.name) ?? []), vkey]);
  }
  const heads = await openCosignedHeads(config.witnessDir, (error) => program.fail(error));
  program.onStop(heads.unlock);
  for (const origin of logs.keys()) {
    if (attempt(() => heads.latest(origin)) !== null) continue;
    log.warn(
      { origin },
      'witness: WITNESS_DIR has no tree head of a log, so this witness cosigns any tree of it',
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
