import { ENGINE_DEFAULTS } from '#api/engine/context';
import { createEngine } from '#api/engine/engine';
import { createWaiting } from '#api/engine/wait';
import { systemClock } from '#runtime/clock';
import { engineConfig } from '#runtime/config';
import { listen } from '#runtime/http-server';
import { reportReady, runProgram } from '#runtime/lifecycle';
import { connect } from '#runtime/postgres';
import { openAdmitEvents, openAdmitQueue } from '#runtime/queues';
import { assertRole } from '#sql/roles';
import { settledIn } from '#sql/settlement';

/** Once the engine is told to stop, an admission is waited for so long and then answered with 202. */
const LAST_WAIT_MS = 3_000;

const exitCode = await runProgram('engine', async (program) => {
  const { log } = program;
  const config = engineConfig();
  const sql = connect(config.databaseUrl, { application: 'svc-engine', max: 16 });
  program.onStop(() => sql.end({ timeout: 5 }));
  await assertRole(sql, 'engine');

  const waiting = createWaiting({ settledIn: (ids) => settledIn(sql, ids), log });
  const queue = openAdmitQueue(config, { log });
  program.onStop(() => queue.close());
  const events = openAdmitEvents(config, (_jobId, ids) => waiting.wake(ids ?? []), { log });
  program.onStop(() => events.close());

  const engine = createEngine({
    ...ENGINE_DEFAULTS,
    sql,
    queue,
    waiting,
    log,
    clock: systemClock,
    liveExecutionLocked: config.liveExecutionLocked,
  });
  const server = await listen(engine, {
    host: config.bind,
    port: config.port,
    portVariable: 'ENGINE_PORT',
  });
  program.onStop(() => {
    waiting.hurry(LAST_WAIT_MS);
    return server.close();
  });
  log.info({ url: server.url }, 'the engine serves');
  reportReady(server.url);
});

process.exit(exitCode);
