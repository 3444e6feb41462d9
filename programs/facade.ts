import { createFacade } from '#api/public/facade';
import { httpSource } from '#api/public/http-source';
import { directorySource, type SnapshotSource } from '#api/public/snapshot-source';
import { systemClock } from '#runtime/clock';
import { facadeConfig, type FacadeConfig } from '#runtime/config';
import { listen } from '#runtime/http-server';
import { reportReady, runProgram } from '#runtime/lifecycle';

function sourceOf({ snapshotDir, snapshotUrl }: FacadeConfig): SnapshotSource {
  return snapshotDir === null ? httpSource(snapshotUrl ?? '') : directorySource(snapshotDir);
}

const code = await runProgram('facade', async (program) => {
  const { log } = program;
  const config = facadeConfig();
  const facade = createFacade({
    snapshotSource: sourceOf(config),
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
