import { isConnectionLost } from '#sql/db/errors';

/**
 * The driver reports a broken connection even without a waiting query, which programs survive
 * (`runtime/process/lifecycle.ts`). The admin program's work is done in this process, and connections break here.
 */
export function surviveLostConnections(): void {
  process.on('unhandledRejection', (error) => {
    if (isConnectionLost(error)) return;
    throw error;
  });
}
