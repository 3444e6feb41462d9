import { totalmem } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** A whole stack, a browser and a compiler may be up at once, one for each worker. */
const ROOMY_BYTES = 7 * 2 ** 30;

export default defineConfig({
  resolve: {
    // The package's own imports, from source: tests never see a stale build.
    alias: [
      {
        find: /^#(protocol|runtime|sql|policy|api|workers|publisher|fsck|programs|bench|sdk)\//,
        replacement: join(import.meta.dirname, '$1/'),
      },
    ],
  },
  test: {
    include: ['test/**/*.test.ts'],
    globalSetup: ['test/fixtures/global-setup.ts'],
    testTimeout: 30_000,
    hookTimeout: 60_000,
    // Machines are shared: what is waited for gets its time, what is asserted does not loosen.
    expect: { poll: { timeout: 15_000 } },
    pool: 'forks',
    // Three, for two cores: much of a test's time is waiting for servers and clocks.
    maxWorkers: totalmem() < ROOMY_BYTES ? 2 : 3,
  },
});
