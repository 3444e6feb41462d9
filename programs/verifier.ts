import { WakeableSleep } from '#runtime/concurrency';
import { verifierConfig } from '#runtime/config';
import { jwkThumbprint } from '#protocol/keys';
import { nativeBase64, nativeCrypto, nativeSha256 } from '#runtime/crypto/node';
import { openSigner } from '#runtime/crypto/signer';
import { reportReady } from '#runtime/process/lifecycle';
import { openTracing } from '#runtime/ops/tracing';
import { connect } from '#runtime/postgres/connect';
import { bulkVerification } from '#runtime/crypto/sodium';
import { OUTCOMES_CHANNEL } from '#sql/admissions/outcomes';
import {
  VerdictClock,
  verifierHeartbeats,
  verifierReadiness,
  VoidedProofs,
} from '#workers/verify/context';
import { runVerifier } from '#workers/verify/verifier';
import { assertDatabase, startHeartbeat } from './database.js';
import { spanRecorder } from './metrics/traces.js';
import { databaseReadings } from './metrics/readings.js';
import { verifierGauges, verifierMetrics } from './metrics/verifier.js';
import { runService } from './service.js';

await runService('verifier', verifierConfig, async (program) => {
  const { config, log, ops, signal } = program;
  const key = await openSigner(config.verifierKeyFile);
  const signer = {
    sign: key.sign,
    keyId: jwkThumbprint(nativeSha256, key.publicKey),
    origin: config.logOrigin,
    snapshotTtl: config.snapshotTtl,
  };
  const sql = connect(config.databaseUrl, { application: 'svc-verifier', max: 2 });
  program.onStop(() => sql.end({ timeout: 5 }));
  const tracing = await openTracing('verifier', config, program);
  await assertDatabase(sql, 'verifier');
  const signatures = await bulkVerification();
  if (signatures.library === 'OpenSSL') {
    log.warn(
      { err: signatures.reason },
      'sodium-native has no binary for this platform: OpenSSL verifies signatures, in 1.5 times the time',
    );
  }
  const crypto = { ...nativeCrypto, verify: signatures.verify, base64: nativeBase64 };
  const heartbeats = verifierHeartbeats();
  verifierGauges(
    ops.registry,
    databaseReadings(ops.registry, program, config.databaseUrl, 'svc-verifier-ops'),
  );
  const readiness = verifierReadiness(sql, heartbeats);
  ops.readyWhen(readiness);
  await startHeartbeat(sql, readiness, program);
  const metrics = verifierMetrics(ops.registry);
  const idleSleep = new WakeableSleep();
  sql.onNotification(OUTCOMES_CHANNEL, () => idleSleep.wake());
  const running = runVerifier(
    {
      ...{ sql, signer, crypto, log, heartbeats, idleSleep, metrics },
      clock: new VerdictClock(),
      voided: new VoidedProofs(),
      ...(tracing && { traced: spanRecorder(tracing, sql, log).leaves('verify') }),
    },
    signal,
  ).catch((error: unknown) => program.fail(error));
  program.onStop(() => running);
  reportReady();
});
