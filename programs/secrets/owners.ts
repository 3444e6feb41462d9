/**
 * The Unix users of a deployment in containers: one for each program, so that one that is taken over
 * reads no other's secrets even where files meet. `docker-compose.yml` names the same numbers.
 */
export const USERS = {
  migrate: 10_000,
  engine: 10_001,
  worker: 10_002,
  verifier: 10_003,
  publisher: 10_004,
  facade: 10_005,
  admin: 10_006,
  fsck: 10_007,
  board: 10_008,
  // What the images of these have.
  postgres: 999,
  valkey: 999,
  grafana: 472,
} as const;

export type Owner = keyof typeof USERS;
