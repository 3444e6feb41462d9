import type { TickReport } from '#publisher/tick';

/** What a process that ticks when it is told to is given first; after that, any message is a tick. */
export interface TickerTask {
  databaseUrl: string;
  snapshotDir: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  origin: string;
  snapshotName: string;
  windowProofs: number;
}

export interface Ticked {
  ms: number;
  report: TickReport;
  /** Written by this tick. */
  bytes: number;
  files: number;
}
