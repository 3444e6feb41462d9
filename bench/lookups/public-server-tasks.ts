/** What a facade without the listener's shortcut is told. */
export interface ExpressFacadeTask {
  snapshotDir: string;
  recentLookupLimit: number;
  logVkey: string;
  snapshotVkey: string;
}

/** What a server is told that has one answer to everything. */
export interface ConstantHttpTask {
  /** Names and values in turn. */
  headers: string[];
  /** Latin-1. */
  body: string;
}
