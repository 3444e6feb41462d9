import { jwkThumbprint } from '#protocol/keys';
import { workerConfig, type WorkerConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { bulkSigningKey, newBulkSigningKey } from '#runtime/crypto/sodium';
import type { Logger } from '#runtime/process/log';
import { reportReady } from '#runtime/process/lifecycle';
import { withPause } from '#runtime/ops/health';
import { openTracing } from '#runtime/ops/tracing';
import { connect } from '#runtime/postgres/connect';
import type { Pool } from '#sql/db/transaction';
import { DelegatedKeys } from '#workers/admit/delegated-keys';
import { watchPolicies, startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { policyCache } from '#policy/check';
import { policySelfTest } from '#policy/self-test';
import { assertDatabase, startHeartbeat } from './database.js';
import { databaseReadings } from './metrics/readings.js';
import { spanRecorder } from './metrics/traces.js';
import { admitMetrics, waitingGauges } from './metrics/worker.js';
import { runService } from './service.js';

/** The AEP key, or the root that delegates to keys of this process. */
async function openKey(signing: WorkerConfig['signing'], log: Logger) {
  const idOf = (publicKey: Uint8Array): string => jwkThumbprint(nativeSha256, publicKey);
  if (signing.rootKeyFile !== undefined) {
    const root = await openSigner(signing.rootKeyFile);
    const signWith = async (sql: Pool) => {
      const { logOrigin: origin } = signing;
      const delegated = new DelegatedKeys({ sql, log, root, newKey: newBulkSigningKey, origin });
      await delegated.renew();
      return { delegated };
    };
    return { id: idOf(root.publicKey), signWith };
  }
  const signer = await bulkSigningKey(signing.keyFile);
  if (signer.library === 'OpenSSL') {
    log.warn(
      { err: signer.reason },
      'sodium-native has no binary for this platform: OpenSSL signs, in twice the time',
    );
  }
  const keyId = idOf(signer.publicKey);
  return { id: keyId, signWith: () => ({ signer, keyId }) };
}

await runService('worker', workerConfig, async (program) => {
  const { config, log, ops } = program;
  const key = await openKey(config.signing, log);
  await policySelfTest();
  const sql = connect(config.databaseUrl, {
    // `admin status` reads the key or root from the application name, because workers cannot record keys.
    application: `svc-worker ${key.id}`,
    // A worker that hangs while it prepares a group keeps the group from other workers.
    idleTransactionMs: 30_000,
    max: WORKER_DEFAULTS.groupsAtOnce + WORKER_DEFAULTS.batchConcurrency + 4,
  });
  program.onStop(() => sql.end({ timeout: 5 }));
  const tracing = await openTracing('worker', config, program);
  await assertDatabase(sql, 'worker');
  const policy = policyCache(sql);
  const watching = watchPolicies({ sql, log, policy }, program.signal);
  program.onStop(() => watching);
  const worker = startAdmitWorker(
    {
      sql,
      log,
      ...(await key.signWith(sql)),
      policy,
      admissionsPaused: config.admissionsPaused,
      metrics: admitMetrics(ops.registry),
      ...(tracing && { traced: spanRecorder(tracing, sql, log).decisions }),
    },
    config,
    WORKER_DEFAULTS,
    (error) => program.fail(error),
  );
  program.onStop(() => worker.close());
  const readings = databaseReadings(ops.registry, program, config.databaseUrl, 'svc-worker-ops');
  waitingGauges(ops.registry, readings, worker);
  const readiness = withPause(config.admissionsPaused, () => worker.readiness());
  ops.readyWhen(readiness);
  await worker.ready;
  await startHeartbeat(sql, readiness, program);
  reportReady();
});
