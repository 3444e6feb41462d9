import { fsck } from '#fsck/run';
import { StateStore, type RunIdentity } from '#fsck/state';
import { snapshotDirectory } from '#fsck/snapshot/source';
import { pinKeys } from '#protocol/snapshot/trust';
import { nativeSha256 } from '#runtime/crypto/node';
import { connect } from '#runtime/postgres/connect';

/** A check that a signal ends, with no time to say anything, when it has come so far. */
export interface DyingCheck {
  databaseUrl: string;
  directory: string;
  stateFile: string;
  identity: RunIdentity;
  logVkey: string;
  snapshotVkey: string;
  /** Leaves. */
  dieAt: number;
}

process.once('message', (task: DyingCheck) => {
  void run(task);
});
process.send?.('ready');

async function run(task: DyingCheck): Promise<void> {
  const log = pinKeys(nativeSha256, [task.logVkey]);
  const snapshot = pinKeys(nativeSha256, [task.snapshotVkey]);
  await fsck({
    registry: { sql: connect(task.databaseUrl, { application: 'test', max: 2 }), logVkeys: log },
    snapshot: {
      files: snapshotDirectory(task.directory),
      trust: { log, snapshot },
      snapshotTtlMs: 60_000,
    },
    waitMs: 60_000,
    state: await StateStore.open(task.stateFile, task.identity, false),
    now: Date.now,
    progress: (stage, done) => {
      // The state is of the chunk before: this one is lost with the process.
      if (stage === 'leaves' && done > task.dieAt) process.kill(process.pid, 'SIGKILL');
    },
    signal: new AbortController().signal,
    chunkLeaves: 256,
    saveEveryMs: 0,
  });
}
