/** Of a program that hands work on, or takes it up. */
export interface QueueConfig {
  databaseUrl: string;
  /** Null: the queue is in the database. */
  redisUrl: string | null;
}
