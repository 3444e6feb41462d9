import type { CycleReport } from '#publisher/cycle';

/** What a process that ticks when it is told to is given first; after that, any message is a tick. */
export interface TickerTask {
  databaseUrl: string;
  snapshotDir: string;
  logKeyFile: string;
  snapshotKeyFile: string;
  origin: string;
  snapshotName: string;
  recentLookupLimit: number;
}

export interface Ticked {
  ms: number;
  report: CycleReport;
  /** Written by this tick. */
  bytes: number;
  files: number;
}
