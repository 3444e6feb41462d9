import { migrateConfig } from '#runtime/config';
import { runProgram } from '#runtime/process/lifecycle';
import { OperatorError } from '#runtime/process/operator-error';
import { migrateDatabase, PROGRAM_ROLES } from './migrate-database.js';

const code = await runProgram(
  'migrate',
  async ({ log, signal }) => {
    const config = migrateConfig();
    const passwords = new Map(config.roleLogins.map(({ role, password }) => [role, password]));
    const strangers = [...passwords.keys()].filter(
      (role) => !(PROGRAM_ROLES as readonly string[]).includes(role),
    );
    if (strangers.length > 0) {
      throw new OperatorError(
        `ROLE_URL_FILES has URLs of unknown roles ${strangers.join(', ')}: the programs' roles are ${PROGRAM_ROLES.join(', ')}`,
      );
    }
    const applied = await migrateDatabase(
      config.databaseUrl,
      (role) => passwords.get(role),
      signal,
    );
    if (passwords.size > 0) log.info({ roles: [...passwords.keys()] }, 'login enabled for roles');
    log.info({ applied }, applied.length > 0 ? 'database migrated' : 'database is up to date');
  },
  { untilMainReturns: true },
);
process.exit(code);
