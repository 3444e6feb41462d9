import { totalmem } from 'node:os';
import { join } from 'node:path';
import { defineConfig } from 'vitest/config';

/** Memory for a whole stack, a browser and a compiler at once, one for each worker. */
const ROOMY_BYTES = 7 * 2 ** 30;

/** Slow tests, which `npm run test:long` runs instead of `npm test`. */
const LONG = 'test/**/*.long.test.ts';

// The package's own imports, from source: tests never see a stale build.
const resolve = {
  alias: [
    {
      find: /^#(protocol|runtime|sql|policy|api|workers|publisher|fsck|programs|bench|sdk)\//,
      replacement: join(import.meta.dirname, '$1/'),
    },
  ],
};
const test = {
  testTimeout: 60_000,
  hookTimeout: 60_000,
  // Waits are long for busy machines; assertions on durations are not loosened.
  expect: { poll: { timeout: 15_000 } },
};

export default defineConfig({
  // For the global set-up, which belongs to no project.
  resolve,
  test: {
    globalSetup: ['test/fixtures/global-setup.ts'],
    pool: 'forks',
    // Three, for two cores: much of a test's time is waiting for servers and clocks.
    maxWorkers: totalmem() < ROOMY_BYTES ? 2 : 3,
    projects: [
      {
        resolve,
        test: {
          ...test,
          name: 'shared',
          include: ['test/**/*.test.ts'],
          exclude: [LONG],
          // Files of a worker share loaded modules: loading them takes a third of the time otherwise.
          isolate: false,
        },
      },
      { resolve, test: { ...test, name: 'long', include: [LONG] } },
    ],
  },
});
