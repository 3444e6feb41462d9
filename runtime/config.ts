import {
  type AdminConfig,
  readAdminConfig,
  readBoardConfig,
  readStatusConfig,
} from './config/admin.js';
import { readEngineConfig } from './config/engine.js';
import type { Environment } from './config/environment.js';
import { readFacadeConfig } from './config/facade.js';
import { readFsckConfig, type FsckConfig, type FsckHalf } from './config/fsck.js';
import { readMigrateConfig, readSecretsConfig, readSetupConfig } from './config/setup.js';
import { readPublisherConfig } from './config/publisher.js';
import { readDemoConfig, readStartConfig, type StartConfig } from './config/start.js';
import { readVerifierConfig, readWorkerConfig } from './config/worker.js';
import { LOG_LEVELS, type LogLevel } from './process/log.js';

export { ConfigError, type Environment } from './config/environment.js';
export { LOCAL_ORIGIN, snapshotNameFor } from './config/fields.js';
export type { AdminConfig, StatusConfig } from './config/admin.js';
export type { BoardConfig } from './config/admin.js';
export { drainGiven, type DrainConfig } from './config/process.js';
export type { EngineConfig } from './config/engine.js';
export type { FacadeConfig } from './config/facade.js';
export type { FsckConfig, TrustedKey } from './config/fsck.js';
export type { MigrateConfig } from './config/setup.js';
export type { OpsConfig } from './config/process.js';
export type { PublisherConfig } from './config/publisher.js';
export type { QueueConfig } from './config/fields.js';
export type { SecretsConfig, SetupConfig } from './config/setup.js';
export type { StartConfig } from './config/start.js';
export type { VerifierConfig } from './config/worker.js';
export type { WorkerConfig } from './config/worker.js';

/** Only this module reads `process.env`; readers in `config/` receive it. */
const ofProcess =
  <Config>(read: (env: Environment) => Config) =>
  (env: Environment = process.env): Config =>
    read(env);

export const engineConfig = ofProcess(readEngineConfig);
export const workerConfig = ofProcess(readWorkerConfig);
export const verifierConfig = ofProcess(readVerifierConfig);
export const publisherConfig = ofProcess(readPublisherConfig);
export const facadeConfig = ofProcess(readFacadeConfig);
export const boardConfig = ofProcess(readBoardConfig);
export const migrateConfig = ofProcess(readMigrateConfig);
export const setupConfig = ofProcess(readSetupConfig);
export const secretsConfig = ofProcess(readSecretsConfig);
export const statusConfig = ofProcess(readStatusConfig);
export const startConfig = ofProcess(readStartConfig);

/** @param role database role of the command */
export function adminConfig(role: 'admin' | 'erase', env: Environment = process.env): AdminConfig {
  return readAdminConfig(role, env);
}

/** @param only the half to check; null for both */
export function fsckConfig(only: FsckHalf | null, env: Environment = process.env): FsckConfig {
  return readFsckConfig(only, env);
}

export function demoConfig(dataDir: string, env: Environment = process.env): StartConfig {
  return readDemoConfig(dataDir, env);
}

/** For a program whose configuration is not read yet. */
export function readLogLevel(fallback: LogLevel, env: Environment = process.env): LogLevel {
  return LOG_LEVELS.find((level) => level === env['LOG_LEVEL']?.trim()) ?? fallback;
}
