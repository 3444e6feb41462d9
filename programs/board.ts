import { boardConfig } from '#runtime/config';
import { listen } from '#runtime/http/server';
import { logRarely } from '#runtime/process/log';
import { reportReady } from '#runtime/process/lifecycle';
import { healthCheck } from '#runtime/ops/health';
import { assertMayOnlyReadQueues, openQueueToRead, QUEUES } from '#runtime/queue/backend';
import { createBoard, loadBoardKey } from './board/app.js';
import { runService } from './service.js';

await runService('board', boardConfig, async (program) => {
  const { config, log, ops } = program;
  const hasKey = loadBoardKey(config.boardKeyFile);
  if (config.redisUrl === null) await assertMayOnlyReadQueues(config.databaseUrl);
  const report = (error: Error): void => logRarely(log, 'warn', { err: error }, 'queue error');
  const opened = QUEUES.map((name) => openQueueToRead(config, name, report));
  program.onStop(async () => {
    await Promise.all(opened.map((one) => one.close()));
    for (const one of opened) one.abandon();
  });
  const queues = opened.map(({ member }) => member);
  const server = await listen(createBoard(queues, hasKey, log), {
    host: config.boardBind,
    port: config.boardPort,
    portVariable: 'BOARD_PORT',
    hostVariable: 'BOARD_BIND',
  });
  program.onStop(() => server.close());
  const queue = healthCheck(() => Promise.all(queues.map((one) => one.getWaitingCount())));
  ops.readyWhen(async () => {
    const found = await queue();
    const status = found === 'up' ? 'ready' : 'unavailable';
    return { ready: found === 'up', details: { status, dependencies: { queue: found } } };
  });
  log.info({ url: server.url }, 'listening');
  reportReady(server.url);
});
