import type { Fault } from '../fault.js';
import { CLOCK_FAULTS } from './clock.js';
import { ENGINE_FAULTS } from './engines.js';
import { FAILOVER_FAULTS } from './failover.js';
import { POSTGRES_FAULTS } from './postgres.js';
import { PROCESS_FAULTS } from './processes.js';
import { PUBLISHER_FAULTS } from './publisher.js';
import { PUBLISHER_WRITE_FAULTS } from './publisher-writes.js';
import { QUEUE_FAULTS } from './queue.js';
import { REDIS_FAULTS } from './redis.js';
import { WORKER_FAULTS } from './worker.js';
import { WRITE_FAULTS } from './writes.js';

/** Everything that the service is claimed to survive. */
export const FAULTS: Fault[] = [
  ...REDIS_FAULTS,
  ...QUEUE_FAULTS,
  ...POSTGRES_FAULTS,
  ...WRITE_FAULTS,
  ...WORKER_FAULTS,
  ...ENGINE_FAULTS,
  ...PROCESS_FAULTS,
  ...PUBLISHER_FAULTS,
  ...PUBLISHER_WRITE_FAULTS,
  ...CLOCK_FAULTS,
  ...FAILOVER_FAULTS,
];
