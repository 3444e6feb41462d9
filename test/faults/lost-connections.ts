import { isConnectionLost } from '#sql/db/errors';

/**
 * The driver tells of a connection that breaks also where nobody waits for it, which programs survive
 * (`runtime/process/lifecycle.ts`). The admin program's work is done in this process, and connections break here.
 */
export function surviveLostConnections(): void {
  process.on('unhandledRejection', (error) => {
    if (isConnectionLost(error)) return;
    throw error;
  });
}
