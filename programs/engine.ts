import { ENGINE_DEFAULTS, TENANT_CONNECTIONS } from '#api/engine/context';
import { createEngine } from '#api/engine/engine';
import { engineReadiness } from '#api/engine/http/health';
import { createPdfRenderer, PDF_DEFAULTS } from '#api/engine/pdf/pool';
import { unreadProblem } from '#api/engine/http/problem';
import { openOutcomeWaiters } from '#api/engine/admission/wait';
import { formatVkey } from '#protocol/note';
import { nativeSha256 } from '#runtime/crypto/node';
import { systemClock } from '#runtime/clock';
import { engineConfig } from '#runtime/config';
import { listen } from '#runtime/http/server';
import { reportReady } from '#runtime/process/lifecycle';
import { withPause } from '#runtime/ops/health';
import { openTracing } from '#runtime/ops/tracing';
import { connect, type Sql } from '#runtime/postgres/connect';
import { openAdmitQueue } from '#runtime/queue/queues';
import { openRedis, warnOfEviction } from '#runtime/queue/redis';
import { logKeysIn } from '#sql/lifecycle/log-keys';
import { announcePending, OUTCOMES_CHANNEL } from '#sql/admissions/outcomes';
import { unpackIds } from '#sql/db/columns';
import { mapStartupDbErrors } from '#sql/db/errors';
import { assertDatabase, startHeartbeat } from './database.js';
import { engineMetrics } from './metrics/engine.js';
import { databaseReadings } from './metrics/readings.js';
import { runService } from './service.js';

/** A stopping engine answers waiting admissions with 202 after this time. */
const LAST_WAIT_MS = 3_000;

/** Statement timeout, short because a caller waits for each statement of the engine. */
const STATEMENT_MS = 10_000;

/**
 * Concurrent transactions: one group of admissions, seven isolated admissions, four batches, and
 * the reads of outcomes. None of them competes with tenants' reads for a connection.
 */
const ADMISSION_CONNECTIONS = 16;

await runService('engine', engineConfig, async (program) => {
  const { config, log, ops } = program;
  const tracing = await openTracing('engine', config, program);
  const openPool = (max: number): Sql => {
    const settings = { application: 'svc-engine', max, statementTimeoutMs: STATEMENT_MS };
    const pool = connect(config.databaseUrl, settings);
    program.onStop(() => pool.end({ timeout: 5 }));
    return pool;
  };
  const sql = openPool(ADMISSION_CONNECTIONS);
  const tenantSql = openPool(TENANT_CONNECTIONS.total);
  await assertDatabase(sql, 'engine');

  const { admissionOutcomes, revocationOutcomes } = openOutcomeWaiters(sql, log);
  const queue = openAdmitQueue(config, { log });
  program.onStop(() => queue.close());
  sql.onNotification(OUTCOMES_CHANNEL, (payload) => {
    const ids = unpackIds(payload);
    admissionOutcomes.wake(ids);
    revocationOutcomes.wake(ids);
  });

  // A separate connection, so that rate limiting does not wait behind jobs. The limiter reports an
  // unreachable Redis and continues without it.
  const redis =
    config.redisUrl === null
      ? null
      : openRedis(config.redisUrl, { whenAway: 'fail_fast', onError: () => undefined });
  program.onStop(() => redis?.disconnect());
  if (redis !== null) warnOfEviction(redis, log);

  const pdf = createPdfRenderer(PDF_DEFAULTS);
  program.onStop(() => pdf.close());

  // The last key is current; the other keys may have signed older checkpoints.
  const logKeys = (await mapStartupDbErrors(() => logKeysIn(sql))).reverse();
  const [logVkey = null, ...retiredLogVkeys] = logKeys.map(({ name, publicKey }) =>
    formatVkey(nativeSha256, name, publicKey),
  );
  const engine = createEngine({
    ...ENGINE_DEFAULTS,
    sql,
    tenantSql,
    queue,
    announce: (...admissions) => announcePending(sql, ...admissions),
    admissionOutcomes,
    revocationOutcomes,
    log,
    clock: systemClock,
    logVkey,
    retiredLogVkeys,
    pdf,
    publicUrl: config.publicUrl,
    admissionsPaused: config.admissionsPaused,
    rateLimit: config.rateLimit,
    maxQueuedAdmissions: config.maxQueuedAdmissions,
    redis,
    metrics: engineMetrics(ops.registry),
    ...(tracing && { tracing }),
    stopping: program.signal,
  });
  const server = await listen(engine, {
    host: config.listenAddress,
    port: config.enginePort,
    portVariable: 'ENGINE_PORT',
    drainDelayMs: config.drain.delayMs,
    answerUnread: unreadProblem,
    messages: engine,
  });
  program.onStop(() => {
    const lastWaitMs = config.drain.delayMs + LAST_WAIT_MS;
    admissionOutcomes.capDeadline(lastWaitMs);
    revocationOutcomes.capDeadline(lastWaitMs);
    return server.close();
  });
  databaseReadings(ops.registry, program, config.databaseUrl, 'svc-engine-ops');
  const readiness = withPause(config.admissionsPaused, engineReadiness({ sql, queue }));
  ops.readyWhen(readiness);
  await startHeartbeat(sql, readiness, program);
  log.info({ url: server.url }, 'listening');
  reportReady(server.url);
});
