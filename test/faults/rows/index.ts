import type { Fault } from '../fault.js';
import { POSTGRES_FAULTS } from './postgres.js';
import { REDIS_FAULTS } from './redis.js';

/** Everything that the service is claimed to survive. */
export const FAULTS: Fault[] = [...REDIS_FAULTS, ...POSTGRES_FAULTS];
