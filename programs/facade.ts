import { createFacade } from '#api/public/facade';
import { directorySource } from '#api/public/snapshot-source';
import { systemClock } from '#runtime/clock';
import { ConfigError, facadeConfig } from '#runtime/config';
import { listen } from '#runtime/http-server';
import { reportReady, runProgram } from '#runtime/lifecycle';

const code = await runProgram('facade', async (program) => {
  const { log } = program;
  const config = facadeConfig();
  if (config.snapshotDir === null) {
    throw new ConfigError([
      'SNAPSHOT_URL is set, but this version reads a snapshot from a directory only: unset it and set SNAPSHOT_DIR',
    ]);
  }
  const facade = createFacade({
    snapshotSource: directorySource(config.snapshotDir),
    logVkey: config.logVkey,
    snapshotVkey: config.snapshotVkey,
    windowProofs: config.windowProofs,
    clock: systemClock,
    log,
  });
  program.onStop(() => facade.close());
  await facade.start();
  const server = await listen(facade.handler, {
    host: config.bind,
    port: config.port,
    portVariable: 'PUBLIC_PORT',
  });
  program.onStop(() => server.close());
  log.info({ url: server.url }, 'the public API serves');
  reportReady(server.url);
});
process.exit(code);
