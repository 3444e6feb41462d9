/** What a process of the bare pipeline is told, once. */
export interface PipelineTask {
  databaseUrl: string;
  /** Where the publisher puts its files. */
  directory: string;
  /** Of the pair that signs and verifies, as PEM. */
  privateKey: string;
  publicKey: string;
}

/** Rows that any stage handles in one go. */
export const GROUP = 1_000;
