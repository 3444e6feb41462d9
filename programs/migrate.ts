import { migrateConfig } from '#runtime/config';
import { runProgram } from '#runtime/lifecycle';
import { migrateDatabase } from './migrate-database.js';

const code = await runProgram(
  'migrate',
  async ({ log }) => {
    const applied = await migrateDatabase(migrateConfig().databaseUrl);
    log.info({ applied }, applied.length > 0 ? 'migrated' : 'there was nothing to migrate');
  },
  { untilMainReturns: true },
);
process.exit(code);
