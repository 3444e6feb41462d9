import type { Environment } from './config/environment.js';
import * as commands from './config/commands.js';
import * as programs from './config/programs.js';
import { LOG_LEVELS, type LogLevel } from './process/log.js';

export { ConfigError, type Environment } from './config/environment.js';
export { LOCAL_ORIGIN, opsPortOf, snapshotNameFor } from './config/fields.js';
export type { DrainConfig, OpsConfig, QueueConfig } from './config/fields.js';
export type * from './config/commands.js';
export type * from './config/programs.js';

/** Only this module reads `process.env`; readers in `config/` receive it. */
const ofProcess =
  <Config>(read: (env: Environment) => Config) =>
  (env: Environment = process.env): Config =>
    read(env);

export const engineConfig = ofProcess(programs.readEngineConfig);
export const workerConfig = ofProcess(programs.readWorkerConfig);
export const verifierConfig = ofProcess(programs.readVerifierConfig);
export const publisherConfig = ofProcess(programs.readPublisherConfig);
export const facadeConfig = ofProcess(programs.readFacadeConfig);
export const startConfig = ofProcess(programs.readStartConfig);
export const boardConfig = ofProcess(programs.readBoardConfig);
export const migrateConfig = ofProcess(commands.readMigrateConfig);
export const setupConfig = ofProcess(commands.readSetupConfig);
export const secretsConfig = ofProcess(commands.readSecretsConfig);
export const statusConfig = ofProcess(commands.readStatusConfig);

/** @param role database role of the command */
export const adminConfig = (role: 'admin' | 'erase', env: Environment = process.env) =>
  commands.readAdminConfig(role, env);

/** @param only the half to check; null for both */
export const fsckConfig = (only: commands.FsckHalf | null, env: Environment = process.env) =>
  commands.readFsckConfig(only, env);

export const demoConfig = (dataDir: string, env: Environment = process.env): programs.StartConfig =>
  programs.readDemoConfig(dataDir, env);

/** The settings that each program reads, for the documentation and for the children of `start`. */
export const SETTINGS = {
  engine: programs.engineSettings,
  worker: programs.workerSettings,
  verifier: programs.verifierSettings,
  publisher: programs.publisherSettings,
  facade: programs.facadeSettings,
  start: programs.startSettings,
  board: programs.boardSettings,
  fsck: commands.fsckSettings,
  migrate: commands.migrateSettings,
  setup: commands.setupSettings,
  secrets: commands.secretsSettings,
};

/** For a program whose configuration is not read yet. */
export function readLogLevel(fallback: LogLevel, env: Environment = process.env): LogLevel {
  return LOG_LEVELS.find((level) => level === env['LOG_LEVEL']?.trim()) ?? fallback;
}
