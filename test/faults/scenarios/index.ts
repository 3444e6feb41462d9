import { DEVICE_FAULTS } from '../devices.js';
import type { Fault } from '../fault.js';
import { FAILOVER_FAULTS } from './failover.js';
import { POSTGRES_FAULTS } from './postgres.js';
import { CLOCK_FAULTS, PROCESS_FAULTS } from './processes.js';
import { PUBLISHER_WRITE_FAULTS } from './publisher-writes.js';
import { REDIS_FAULTS } from './redis.js';
import { WORKER_FAULTS } from './worker.js';
import { WRITE_FAULTS } from './writes.js';

/** Every fault that the service must survive. */
export const FAULTS: Fault[] = [
  ...REDIS_FAULTS,
  ...POSTGRES_FAULTS,
  ...WRITE_FAULTS,
  ...WORKER_FAULTS,
  ...PROCESS_FAULTS,
  ...PUBLISHER_WRITE_FAULTS,
  ...CLOCK_FAULTS,
  ...FAILOVER_FAULTS,
  ...DEVICE_FAULTS,
];
