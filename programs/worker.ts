import { jwkThumbprint } from '#protocol/keys';
import { workerConfig } from '#runtime/config';
import { nativeSha256 } from '#runtime/crypto/node';
import { bulkSigningKey } from '#runtime/crypto/sodium';
import { reportReady, runProgram } from '#runtime/process/lifecycle';
import { openOps } from '#runtime/ops/ops';
import { openTracing } from '#runtime/ops/tracing';
import { connect } from '#runtime/postgres/connect';
import { UNQUEUED_CHANNEL } from '#sql/admissions/outcomes';
import { unpackIds } from '#sql/db/columns';
import { watchPolicies, startAdmitWorker, WORKER_DEFAULTS } from '#workers/admit/worker';
import { policyCache } from '#policy/check';
import { policySelfTest } from '#policy/self-test';
import { assertDatabase, startHeartbeat } from './database.js';
import { databaseReadings } from './metrics/readings.js';
import { tracedDecisions } from './metrics/traces.js';
import { admitMetrics, waitingGauges } from './metrics/worker.js';

const code = await runProgram('worker', async (program) => {
  const { log } = program;
  const config = workerConfig();
  program.drainAs(config.drain);
  const ops = await openOps('worker', config.ops, program);
  const signer = await bulkSigningKey(config.aepKeyFile);
  if (signer.library === 'OpenSSL') {
    log.warn(
      { err: signer.reason },
      'sodium-native has no binary for this platform: OpenSSL signs, in twice the time',
    );
  }
  await policySelfTest();
  const keyId = jwkThumbprint(nativeSha256, signer.publicKey);
  const sql = connect(config.databaseUrl, {
    // `admin status` reads the key from the application name, because a worker cannot record it.
    application: `svc-worker ${keyId}`,
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
      signer,
      keyId,
      policy,
      admissionsPaused: config.admissionsPaused,
      metrics: admitMetrics(ops.registry),
      ...(tracing && { traced: tracedDecisions(tracing, sql, log) }),
    },
    config,
    WORKER_DEFAULTS,
    (error) => program.fail(error),
  );
  program.onStop(() => worker.close());
  sql.onNotification(UNQUEUED_CHANNEL, (payload) => worker.takeUnqueued(unpackIds(payload)));
  const readings = databaseReadings(ops.registry, program, config.databaseUrl, 'svc-worker-ops');
  waitingGauges(ops.registry, readings, worker);
  ops.readyWhen(() => worker.readiness());
  await worker.ready;
  await startHeartbeat(sql, () => worker.readiness(), program);
  reportReady();
});
process.exit(code);
